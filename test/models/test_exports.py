# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Outputs of real exporters, decoded as by the exporters' own post-processing.

Each file of ``exports/`` holds the outputs of a network with random weights for one picture, what
its file says of itself, and the results of the exporter's package; docs/models.md says how they
were made.
"""

# Without the annotations of __future__: under pytest 6, which Ubuntu 22.04 has, no dataclass could
# look its module up.

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.base import DecoderSettings, Inspected
from jetson_dnn_rt.models.heads.registry import find_layout, recognise_head
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing
from jetson_dnn_rt.models.metadata import SILENT, read_metadata
from jetson_dnn_rt.results import Classification, Detections, Segmentation

FOLDER = Path(__file__).parent / "exports"

RESIZE = {
    "letterbox centre": "letterbox_center",
    "letterbox center": "letterbox_center",
    "letterbox topleft": "letterbox_topleft",
    "stretch": "stretch",
    "stretch (square)": "stretch",
}


@dataclass
class Recording:
    """One file: the network as it was inspected, the outputs for the picture, the reference."""

    seen: Inspected
    outputs: list[np.ndarray]
    reference: dict[str, np.ndarray]
    meta: dict[str, Any]

    @staticmethod
    def read(name: str) -> "Recording":
        with np.load(FOLDER / f"{name}.npz") as file:
            arrays = {key: file[key] for key in file.files}
        meta = json.loads(str(arrays.pop("meta")))
        for key in [key for key in arrays if key.startswith("alt_")]:
            # With orig_target_sizes = the size of the input, as the ONNX source sets it.
            arrays[key.removeprefix("alt_")] = arrays[key]
        if "output_0_rows" in arrays:  # of a large one those that matter; the others are no object
            arrays["output_0"] = np.zeros(arrays["output_0_shape"], np.float32)
            arrays["output_0"][..., 2:4] = -1.0  # as small boxes are before the exponential
            arrays["output_0"][0, arrays["output_0_rows"]] = arrays["output_0_values"]
        kinds = [_kind_of(output["dtype"]) for output in meta["outputs"]]
        outputs, probes = (
            # OpenVINO's SSD has no ONNX file that could be run on a grey picture.
            [
                arrays.get(f"{key}_{i}", arrays[f"output_{i}"]).astype(k)
                for i, k in enumerate(kinds)
            ]
            for key in ("output", "probe")
        )
        seen = Inspected(
            probes,
            _size_of(meta),
            tuple(output["name"] for output in meta["outputs"]),
            read_metadata(meta["metadata_props"]),
            outputs_chosen=True,
        )
        reference = {k.removeprefix("ref_"): v for k, v in arrays.items() if k.startswith("ref_")}
        return Recording(seen, outputs, reference, meta)

    @property
    def preprocessing(self) -> Preprocessing:
        said = self.meta["preprocessing"]
        mean, std = (tuple(map(float, said[key])) for key in ("mean", "std"))
        return Preprocessing(
            *self.seen.input_size, RESIZE.get(said["resize"], "stretch"),
            said.get("pad_value", 114), said["color"], said["scale"], mean, std,
        )  # fmt: skip

    @property
    def geometry(self) -> Geometry:
        picture = self.meta["picture"]
        return Geometry.of(self.preprocessing, picture["height"], picture["width"])

    @property
    def settings(self) -> DecoderSettings:
        said = self.meta["thresholds"]
        return DecoderSettings(
            confidence=said.get("conf", 0.5),
            nms_iou=said.get("iou") or 1.0,
            # Some take no limit, whatever they are given.
            max_detections=max(said.get("max_det") or 1, len(self.reference.get("scores", ()))),
            class_agnostic=said.get("agnostic", False),
        )

    def decode(self, head: str = "auto", settings: DecoderSettings | None = None) -> Any:
        found = recognise_head(self.seen, head)
        return found.make_decoder()(self.outputs, self.geometry, settings or self.settings)


def _kind_of(text: str) -> str:
    kinds = {"float": "float32", "float16": "float32", "double": "float32"}
    name = text.removeprefix("tensor(").removesuffix(")")
    return kinds.get(name, name)


def _size_of(meta: dict[str, Any]) -> tuple[int, int]:
    shape = meta["input_used"]
    if len(shape) == 3:
        return shape[1], shape[2]
    return (shape[1], shape[2]) if shape[3] == 3 and shape[1] != 3 else (shape[2], shape[3])


HEADS = {
    "openvino_ssd": "ssd",
    "unet_sigmoid": "binary_mask",
    "yolov5n_original": "yolov5",
    "yolov5n_original_seg": "yolov5_seg",
    "efficientnms": "box_lists",
    "twinlitenet": "masks",
    "unet": "binary_mask",
    "detr": "detr",
    "dfine_official": "box_lists",
    "rfdetr_nano": "rfdetr",
    "rtdetrv2_official": "box_lists",
    "tv_efficientnet_b0": "classification",
    "tv_deeplabv3": "masks",
    "tv_fasterrcnn": "torchvision",
    "tv_fasterrcnn_list": "torchvision",
    "tv_keypointrcnn": "torchvision_pose",
    "tv_lraspp": "segmentation",
    "tv_maskrcnn": "torchvision_seg",
    "tv_ssd300": "torchvision",
    "tv_ssdlite": "torchvision",
    "tv_fcos": "torchvision",
    "tv_mobilenet_v3_small": "classification",
    "tv_resnet18": "classification",
    "dfine_hf": "detr_sigmoid",
    "rtdetr_hf": "detr_sigmoid",
    "rtdetrv2_hf": "detr_sigmoid",
    "segformer": "segmentation",
    "u8_3_rtdetr_l": "rtdetr",
    "u8_3_yolo11n_pose_nms": "end_to_end_pose",
    "rtdetr_l": "rtdetr_rows",
    "u8_3_yolov10n": "end_to_end",
    "u8_3_yolov8n": "yolov8",
    "u8_4_0_yolo26n": "end_to_end",
    "u8_4_0_yolo26n_obb": "end_to_end_obb",
    "u8_4_0_yolo26n_pose": "end_to_end_pose",
    "yolo11n": "yolov8",
    "yolo11n_dynamic": "yolov8",
    "yolo11n_nms": "end_to_end",
    "yolo11n_seg": "yolov8_seg",
    "yolo26n": "yolov8",
    "yolo26n_end2end": "end_to_end",
    "yolo26n_obb": "yolov8_obb",
    "yolo26n_obb_end2end": "end_to_end_obb",
    "yolo26n_pose": "yolov8_pose",
    "yolo26n_pose_end2end": "end_to_end_pose",
    "yolo26n_seg": "yolov8_seg",
    "yolo26n_seg_end2end": "end_to_end_seg",
    "yolo26n_sem": "class_map",
    "yolov10n": "yolov8",
    "yolox_nano": "yolox",
    "yolox_nano_random": "yolox",
    "yolox_nano_random_decoded": "yolox_decoded",
    "yolov10n_end2end": "end_to_end",
    "yolov5nu": "yolov8",
    "yolov8n": "yolov8",
    "yolov8n_cls": "classification",
    "yolov8n_half": "yolov8",
    "yolov8n_obb": "yolov8_obb",
    "yolov8n_pose": "yolov8_pose",
    "yolov8n_pose_4x2": "yolov8_pose",
    "yolov8n_seg": "yolov8_seg",
    "yolov8n_seg_nms": "end_to_end_seg",
}
"""Head of each recording."""

ASKED = {"detr", "rtdetr_hf", "rtdetrv2_hf", "yolox_nano_random_decoded"}
"""Those that leave a doubt: softmax or sigmoid, with an objectness or without. `head` decides."""


def test_every_recording_is_tested():
    # That one's decoder is an example: test_custom_heads.py.
    assert sorted([*HEADS, "fastestdet"]) == sorted(path.stem for path in FOLDER.glob("*.npz"))


@pytest.mark.parametrize("name", HEADS)
def test_recognised(name):
    recording = Recording.read(name)
    if name in ASKED:
        pair = "yolox_decoded", "yolov8_rows"
        if HEADS[name] not in pair:
            pair = "detr", "detr_sigmoid"
        words = rf"to be read:(.|\n)*{pair[0]}: (.|\n)*{pair[1]}: "
        with pytest.raises(ModelError, match=words):
            recognise_head(recording.seen)
    head = recognise_head(recording.seen, HEADS[name] if name in ASKED else "auto")
    assert head.name == HEADS[name]
    names = recording.seen.metadata.names
    assert head.classes in (0, len(names) if names else head.classes)


ALMOST = ("yolox_nano", "yolox_nano_random", "yolox_nano_random_decoded", "openvino_ssd")


@pytest.mark.parametrize("name", ALMOST)
def test_almost_the_same_results(name):
    """YOLOX's demo suppresses across classes and counts areas with a pixel more: some more go.

    The reference of the SSD is torchvision's, of the same raw outputs: one of 30 is another.
    """
    recording = Recording.read(name)
    settings = replace(recording.settings, class_agnostic=True, max_detections=300)
    found = recording.decode(HEADS[name], settings=settings)
    reference = recording.reference
    sides = np.array([960, 540] * 2)
    same = np.abs(found.scores[:, None] - reference["scores"]) < 1e-4
    same &= found.class_ids[:, None] == reference["classes"]
    expected = np.clip(reference["boxes"], 0, sides)
    near = np.abs(found.boxes[:, None] - expected).max(axis=2) < 1.5  # its resize truncates
    assert np.mean((same & near).any(axis=0)) > 0.96
    assert len(found) <= 1 + 1.03 * len(reference["scores"])


@pytest.mark.parametrize("name", [name for name in HEADS if name not in ALMOST])
def test_same_results_as_the_exporter_s_own(name):
    recording = Recording.read(name)
    result = recording.decode(HEADS[name] if name in ASKED else "auto")
    if isinstance(result, Detections):
        check_detections(result, recording)
    elif isinstance(result, Segmentation):
        for mask in result.masks:
            key = f"mask_{mask.name}" if f"mask_{mask.name}" in recording.reference else "mask"
            if mask.name != "aux":  # torchvision's, for training alone
                check_mask(mask.mask, recording.reference[key], recording)
    else:
        assert isinstance(result, Classification)
        expected = recording.reference["probs"]
        np.testing.assert_allclose(result.scores, expected[result.class_ids], atol=1e-3)
        assert np.all(np.diff(result.scores) <= 0)


def check_detections(found, recording):
    """Every box has its own in the reference: class, score, corners, parts."""
    picture = recording.meta["picture"]
    sides = np.array([picture["width"], picture["height"]] * 2)
    reference = dict(recording.reference)
    clipped = np.clip(reference["boxes"], 0, sides)
    # A box without an area shows nothing: we drop it.
    shown = np.all(clipped[:, 2:] > clipped[:, :2], axis=1)
    rows = ("boxes", "scores", "classes", "keypoints", "corners")
    reference |= {key: reference[key][shown] for key in rows if key in reference}
    assert len(found) == len(reference["scores"]) > 0
    clipped = {**reference, "boxes": clipped[shown]}
    pairs = match_rows(found, clipped)
    np.testing.assert_allclose(found.scores, reference["scores"][pairs], atol=2e-3)
    np.testing.assert_allclose(found.boxes, clipped["boxes"][pairs], atol=0.6)
    if "keypoints" in reference:
        points = reference["keypoints"][pairs]
        clipped = np.clip(found.keypoints[..., :2], 0, sides[:2])
        clipped[~points[..., :2].any(axis=2)] = 0.0  # 8.3 moves those it does not see to 0, 0
        np.testing.assert_allclose(clipped, points[..., :2], atol=0.6)
        if points.shape[2] == 3:
            np.testing.assert_allclose(found.keypoints[..., 2], points[..., 2], atol=2e-3)
        else:
            assert np.all(found.keypoints[..., 2] == 1.0)
    if "corners" in reference:
        corners = corners_of(found.rotated)
        np.testing.assert_allclose(corners, reference["corners"][pairs], atol=0.6)
    if "masks" in reference:
        shape = reference["masks_shape"]
        masks = np.unpackbits(reference["masks"])[: np.prod(shape)].reshape(shape).astype(bool)
        check_instances(found.instance_mask, masks[pairs])


def match_rows(found, reference):
    """For each row of the result the row of the reference: greedily the nearest of its class."""
    free = list(range(len(reference["scores"])))
    pairs = []
    for box, score, class_id in zip(found.boxes, found.scores, found.class_ids, strict=True):
        rows = [row for row in free if reference["classes"][row] == class_id]
        assert rows, f"no box of class {class_id} is left"
        distances = [
            np.abs(reference["boxes"][row] - box).max()
            + 1e5 * abs(reference["scores"][row] - score)
            for row in rows
        ]
        pairs.append(rows[int(np.argmin(distances))])
        free.remove(pairs[-1])
    return np.array(pairs, int)


def corners_of(rotated):
    """Corners in the exporter's order: centre + along + across, + along - across, and so on."""
    x, y, width, height, angle = rotated.T
    along = np.stack([np.cos(angle), np.sin(angle)], 1) * (width / 2)[:, None]
    across = np.stack([-np.sin(angle), np.cos(angle)], 1) * (height / 2)[:, None]
    centre = np.stack([x, y], 1)
    signs = ((1, 1), (1, -1), (-1, -1), (-1, 1))
    return np.stack([centre + a * along + b * across for a, b in signs], 1)


def check_instances(mask, expected):
    """The best object is on top. Ours is one interpolation from the prototypes to the picture,
    theirs two, so edges differ; nothing else does, and no shift makes it fit better.
    """
    picture = np.zeros(mask.shape, np.uint16)
    for k in reversed(range(len(expected))):
        shown = expected[k].astype(np.float32)  # torchvision's have the size of the input
        picture[cv2.resize(shown, mask.shape[::-1]) > 0.5] = k + 1
    assert mask.dtype == np.uint16
    # A cell of the prototypes has 20 pixels of this picture.
    assert np.mean((mask != picture) & ~find_edges(picture, 20)) < 0.01
    shifts = [(dy, dx) for dy in range(-3, 4) for dx in range(-3, 4)]
    errors = [np.mean(np.roll(mask, shift, (0, 1)) != picture) for shift in shifts]
    assert shifts[int(np.argmin(errors))] == (0, 0)


def find_edges(picture, width):
    """Pixels that are at most half of `width` away from one of another value."""
    edges = cv2.morphologyEx(picture, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
    return cv2.dilate(edges.astype(np.uint8), np.ones((width + 1, width + 1), np.uint8)) > 0


def check_mask(mask, expected, recording):
    """Exporters interpolate the logits, we take the nearest cell: edges differ, nothing else."""
    if mask.shape != expected.shape:  # theirs has the size of the input
        assert expected.shape == recording.seen.input_size
        mask = cv2.resize(mask, expected.shape[::-1], interpolation=cv2.INTER_NEAREST)
    rows = recording.outputs[0].shape[-2]
    cell = -(-recording.geometry.source_height * recording.seen.input_size[0]
             // (recording.geometry.resized_height * rows))  # fmt: skip
    assert np.mean((mask != expected) & ~find_edges(expected, cell + 1)) < 0.005
    assert np.mean(mask == expected) > 0.85


@pytest.mark.parametrize(
    "name", [name for name in HEADS if "ref_agnostic_boxes" in np.load(FOLDER / f"{name}.npz")]
)
def test_suppression_across_classes(name):
    recording = Recording.read(name)
    found = recording.decode(settings=replace(recording.settings, class_agnostic=True))
    reference = {
        key: recording.reference[f"agnostic_{key}"] for key in ("boxes", "scores", "classes")
    }
    assert len(found) == len(reference["scores"])
    pairs = match_rows(found, reference)
    np.testing.assert_allclose(found.boxes, reference["boxes"][pairs], atol=0.6)


def tells_its_preprocessing(name):
    """Whether the file of a recording says by whom it was made, and we have that resize."""
    recording = Recording.read(name)
    return (
        recording.seen.metadata.is_ultralytics
        and recording.seen.metadata.task != "semantic"  # not by the layout
        and recording.meta["preprocessing"]["resize"] in RESIZE
    )


@pytest.mark.parametrize("name", filter(tells_its_preprocessing, HEADS))
def test_the_preprocessing_is_the_exporter_s(name):
    recording = Recording.read(name)
    layout = find_layout(recognise_head(recording.seen).name)
    assert layout.preprocessing(*recording.seen.input_size) == recording.preprocessing


POSES = [name for name, head in HEADS.items() if head == "yolov8_pose"]


@pytest.mark.parametrize("name", POSES)
def test_a_pose_model_is_never_taken_for_a_detector(name):
    """With metadata it is what they say; without, the error names both readings and `head`."""
    recording = Recording.read(name)
    with pytest.raises(ModelError, match="contradicts the file, whose metadata say task 'pose'"):
        recording.decode("yolov8")
    recording.seen = replace(recording.seen, metadata=SILENT)
    with pytest.raises(ModelError) as raised:
        recording.decode()
    text = str(raised.value)
    assert "yolov8: " in text
    assert "yolov8_pose: " in text
    assert "set head to what it is" in text
    with pytest.raises(ModelError, match="its scores would be"):
        recording.decode("yolov8")
    if name != "yolov8n_pose_4x2":  # whose number of values the shape does not tell
        check_detections(recording.decode("yolov8_pose"), recording)


@pytest.mark.parametrize("name", [name for name, head in HEADS.items() if head == "yolov8_obb"])
def test_oriented_boxes_are_never_taken_for_a_detector(name):
    recording = Recording.read(name)
    recording.seen = replace(recording.seen, metadata=SILENT)
    with pytest.raises(ModelError, match=r"yolov8: (.|\n)*yolov8_obb: "):
        recording.decode()
    check_detections(recording.decode("yolov8_obb"), recording)
