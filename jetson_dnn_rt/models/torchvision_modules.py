"""torchvision's networks as modules of one image tensor that return tensors."""

from __future__ import annotations

from typing import Any, cast

import torch
from torchvision.models.detection.image_list import ImageList

Detection = dict[str, torch.Tensor]


class _AsIs(torch.nn.Module):
    """In place of a detector's resize and normalisation, which have been done."""

    def forward(self, images: list[torch.Tensor], targets: Any = None) -> tuple[ImageList, Any]:
        batch = torch.stack(images)
        return ImageList(batch, [(image.shape[-2], image.shape[-1]) for image in images]), targets

    def postprocess(
        self, result: list[Detection], image_shapes: object, original_image_sizes: object
    ) -> list[Detection]:
        return result


class DetectionModule(torch.nn.Module):
    """``[1, 3, H, W]``, normalised, to boxes [N, 4], labels [N] and scores [N]."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        network.transform = _AsIs()
        heads = getattr(network, "roi_heads", None)
        for part in ("mask", "keypoint"):  # they cost time, and no topic takes what they find
            if hasattr(heads, f"{part}_roi_pool"):
                setattr(heads, f"{part}_roi_pool", None)
        self.network = network

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run the network, its own suppression of overlaps included."""
        found: Detection = self.network([image[0]])[0]
        return found["boxes"], found["labels"], found["scores"]


class SegmentationModule(torch.nn.Module):
    """``[1, 3, H, W]``, normalised, to logits [1, C, h, w]."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Run the network without its auxiliary output."""
        return cast(torch.Tensor, self.network(image)["out"])
