# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""torchvision's networks as modules of one image tensor that return tensors.

All but the two-stage detectors can be traced by torch.fx: parts that depend on the size of the
input alone are computed once, here, and those that depend on values are in a leaf.
"""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import torch
from torchvision.models.detection import FCOS, RetinaNet
from torchvision.models.detection.image_list import ImageList
from torchvision.models.segmentation import LRASPP

from jetson_dnn_rt.models.heads.base import Kind

Detection = dict[str, torch.Tensor]

# The order in which the leaf takes the outputs of a head; only FCOS has the third.
_HEAD_OUTPUTS = ("bbox_regression", "cls_logits", "bbox_ctrness")


class OneStageModule(torch.nn.Module):
    """SSD, RetinaNet or FCOS: ``[1, 3, H, W]``, normalised, to boxes, labels and scores.

    The same bits as torchvision's own module, whose parts are reused and which computes its
    anchors in every frame. `size` is the height and width of the input in pixels.
    """

    def __init__(self, network: torch.nn.Module, size: tuple[int, int]) -> None:
        super().__init__()
        detector: Any = network
        self.backbone = detector.backbone
        self.head = detector.head
        shapes = _find_feature_shapes(self.backbone, size)
        features = [torch.empty(shape) for shape in shapes]
        images = ImageList(torch.empty(1, 3, *size), [size])
        anchors = detector.anchor_generator(images, features)[0]
        levels = None
        if isinstance(detector, (FCOS, RetinaNet)):  # the same number of anchors in each cell
            cells = [math.prod(shape[2:]) for shape in shapes]
            levels = [count * (len(anchors) // sum(cells)) for count in cells]
        self.suppression = _Suppression(detector, anchors, levels, size)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return boxes [N, 4], xyxy in pixels of the input, labels [N] and scores [N]."""
        outputs = self.head(list(self.backbone(image).values()))
        found = self.suppression(*(outputs[name] for name in _HEAD_OUTPUTS if name in outputs))
        return found[0], found[1], found[2]


class _Suppression(torch.nn.Module):
    """Post-processing of a detector's head outputs to a list of boxes: one step for the tracer.

    `detector` (SSD, RetinaNet or FCOS) gives its thresholds. `anchors` are xyxy in pixels of the
    input, float32 [N, 4]; `levels` counts them by level where the best are taken by level.
    """

    fx_leaf = True
    anchors: torch.Tensor

    def __init__(
        self, detector: Any, anchors: torch.Tensor, levels: list[int] | None, size: tuple[int, int]
    ) -> None:
        super().__init__()
        # The detector without its layers: its thresholds, and the method that goes with them.
        shell = copy.copy(detector)
        shell._modules, shell._parameters, shell._buffers = {}, {}, {}
        self._rules = [shell]  # in a list: an attribute would make it a part of the network
        self._levels = levels
        self._size = size
        self.register_buffer("anchors", anchors.clone(), persistent=False)

    @property
    def score_threshold(self) -> float:
        """Boxes of lower scores are dropped."""
        return float(self._rules[0].score_thresh)

    def extra_repr(self) -> str:
        """Name the rules: hashes of graphs are made from this."""
        rules = self._rules[0]
        names = ("score_thresh", "nms_thresh", "topk_candidates", "detections_per_img")
        values = ", ".join(f"{name}={getattr(rules, name)}" for name in names)
        return f"{type(rules).__name__}, size={self._size}, {values}"

    def forward(self, *outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Decode, clip to the image, suppress overlaps by class."""
        # In fp32 whatever the network ran in: bf16 has steps of 2 pixels at x = 400.
        named: dict[str, Any] = {
            name: output.float() for name, output in zip(_HEAD_OUTPUTS, outputs, strict=False)
        }
        anchors: list[Any] = [self.anchors]
        if self._levels is not None:
            named = {key: list(torch.split(all_, self._levels, 1)) for key, all_ in named.items()}
            anchors = [list(torch.split(self.anchors, self._levels))]
        found: Detection = self._rules[0].postprocess_detections(named, anchors, [self._size])[0]
        return found["boxes"], found["labels"], found["scores"]


def _find_feature_shapes(backbone: torch.nn.Module, size: tuple[int, int]) -> list[torch.Size]:
    """Shapes of the feature maps, from a run that computes nothing."""
    state = {**dict(backbone.named_parameters()), **dict(backbone.named_buffers())}
    shadow = {name: tensor.to("meta") for name, tensor in state.items()}
    image = torch.empty(1, 3, *size, device="meta")
    with torch.no_grad():
        features = torch.func.functional_call(backbone, shadow, (image,))
    return [feature.shape for feature in features.values()]


class _AsIs(torch.nn.Module):
    """Replaces a detector's resize and normalisation, which have been done."""

    def forward(self, images: list[torch.Tensor], targets: Any = None) -> tuple[ImageList, Any]:
        batch = torch.stack(images)
        return ImageList(batch, [(image.shape[-2], image.shape[-1]) for image in images]), targets

    def postprocess(
        self, result: list[Detection], image_shapes: object, original_image_sizes: object
    ) -> list[Detection]:
        return result


class TwoStageModule(torch.nn.Module):
    """An R-CNN: ``[1, 3, H, W]``, normalised, to boxes [N, 4], labels [N] and scores [N].

    How often its second stage runs depends on the results of the first: this cannot be traced.
    """

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        network.transform = _AsIs()
        heads = getattr(network, "roi_heads", None)
        for part in ("mask", "keypoint"):  # they cost time, and no topic publishes their results
            if hasattr(heads, f"{part}_roi_pool"):
                setattr(heads, f"{part}_roi_pool", None)
        self.network = network

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run the network, its own suppression of overlaps included."""
        found: Detection = self.network([image[0]])[0]
        return found["boxes"], found["labels"], found["scores"]


class SegmentationModule(torch.nn.Module):
    """``[1, 3, H, W]``, normalised, to logits [1, C, H, W]; without the auxiliary output.

    torchvision's parts are reused. `size` is the height and width of the input in pixels.
    """

    def __init__(self, network: torch.nn.Module, size: tuple[int, int]) -> None:
        super().__init__()
        self.backbone = cast(torch.nn.Module, network.backbone)
        self.classifier = cast(torch.nn.Module, network.classifier)
        self._takes_all = isinstance(network, LRASPP)
        self._size = size

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits, resized to the input."""
        features = self.backbone(image)
        logits = self.classifier(features if self._takes_all else features["out"])
        return torch.nn.functional.interpolate(
            logits, size=self._size, mode="bilinear", align_corners=False
        )


def wrap(network: torch.nn.Module, kind: Kind, size: tuple[int, int]) -> torch.nn.Module:
    """Give a network of torchvision the form ``[1, 3, H, W]`` to tensors."""
    if kind == "classification":
        return network
    if kind == "segmentation":
        return SegmentationModule(network, size)
    if hasattr(network, "roi_heads"):
        return TwoStageModule(network)
    return OneStageModule(network, size)
