# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Names of classes, and results as values for JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads import labels
from jetson_dnn_rt.models.heads.result_lines import describe_result
from jetson_dnn_rt.results import Classification, Detections, Segmentation


def test_data_sets_have_their_numbers():
    assert len(labels.COCO_80) == 80
    assert len(labels.COCO_91) == 91
    assert len(labels.VOC_21) == 21
    assert len(labels.imagenet()) == 1000
    assert (labels.COCO_80[2], labels.COCO_80[79]) == ("car", "toothbrush")
    assert (labels.COCO_91[3], labels.COCO_91[90]) == ("car", "toothbrush")


def test_data_sets_equal_torchvisions():
    from torchvision.models.detection import SSDLite320_MobileNet_V3_Large_Weights
    from torchvision.models.segmentation import LRASPP_MobileNet_V3_Large_Weights

    coco = SSDLite320_MobileNet_V3_Large_Weights.DEFAULT.meta["categories"]
    voc = LRASPP_MobileNet_V3_Large_Weights.DEFAULT.meta["categories"]
    assert list(labels.COCO_91) == coco
    assert list(labels.VOC_21) == voc


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("names.txt", "car\n\n truck \nvan\n"),
        ("names.yaml", "[car, truck, van]"),
        ("names.yml", "path: x\nnames:\n  0: car\n  2: van\n  1: truck\n"),
        ("data.yaml", "names: [car, truck, van]\nnc: 3\n"),
        ("map.yaml", "0: car\n1: truck\n2: van\n"),
    ],
)
def test_files(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert labels.read_labels(tmp_path / name) == ("car", "truck", "van")
    assert labels.names_of_mapping({0: "a", 2: "c"}) == ("a", "class_1", "c")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", None, "cannot read"),
        ("a.txt", b"", "holds no names"),
        ("a.txt", b"\xff\xfe\x00", "cannot read"),
        ("a.yaml", b"names: {car: 1}", "keys of the mapping"),
        ("a.yaml", b"names: 3", "neither a list nor a mapping"),
        ("a.yaml", b"[a, : b", "is not YAML"),
        ("a.yaml", b"!!python/object/apply:os.getcwd []", "is not YAML"),
        ("a.yaml", b"9999999999: car", "keys of the mapping"),
        ("a.txt", b"x" * (1 << 20) + b"y", "larger than"),
    ],
)
def test_bad_files(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=words):
        labels.read_labels(tmp_path / name)


@pytest.mark.parametrize("text", ["[no, yes, 1, 007]", "names: {0: no, 1: yes, 2: 1, 3: 007}"])
def test_words_that_are_false_in_yaml_are_names(tmp_path, text):
    """A file with ``no, yes`` gave the classes False and True."""
    (tmp_path / "names.yaml").write_text(text)
    assert labels.read_labels(tmp_path / "names.yaml") == ("no", "yes", "1", "007")


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    (tmp_path / "names.txt").write_bytes(b"\xef\xbb\xbfcar\r\ntruck\r\n")
    assert labels.read_labels(tmp_path / "names.txt") == ("car", "truck")


def test_one_text_is_the_name_of_the_only_class_unless_it_is_a_file(tmp_path, monkeypatch):
    """``labels: [person]`` of a network of one class was taken for a file that is not there."""
    monkeypatch.chdir(tmp_path)
    resolve = labels.resolve_labels
    assert resolve(["person"], None, "detection", 1) == ("person",)
    assert resolve("person", None, "detection", 1) == ("person",)
    assert resolve(["person"], None, "detection", 0) == ("person",)  # their number is not known
    assert resolve(["St. Bernard"], None, "detection", 1) == ("St. Bernard",)
    (tmp_path / "names").write_text("car\ntruck\n")
    assert resolve(["names"], None, "detection", 2) == ("car", "truck")
    (tmp_path / "folder").mkdir()
    assert resolve(["folder"], None, "detection", 1) == ("folder",)
    for missing in ("person.txt", "./person", "data/person.YAML"):
        with pytest.raises(ModelError, match=r"cannot read .*No such file"):
            resolve([missing], None, "detection", 1)
    with pytest.raises(ModelError, match=r"'person' is neither a file nor one of .* 5 classes"):
        resolve(["person"], None, "detection", 5)
    with pytest.raises(ModelError, match=r"did you mean coco80\?"):
        resolve(["coco8"], None, "detection", 1)


def test_what_goes_before_what():
    resolve = labels.resolve_labels
    assert resolve(["a", "b"], ["x", "y"], "detection", 2) == ("a", "b")
    assert resolve(None, ["x", "y"], "detection", 2) == ("x", "y")
    assert resolve([], ["x", "y"], "detection", 2) == ("x", "y")
    assert resolve(None, None, "detection", 80) == labels.COCO_80
    assert resolve(None, None, "segmentation", 21) == labels.VOC_21
    assert resolve(None, None, "classification", 1000) == labels.imagenet()
    assert resolve(None, None, "detection", 2) == ("class_0", "class_1")
    assert resolve("coco80", None, "detection", 80) == labels.COCO_80
    with pytest.raises(ModelError, match="2 names for a model of 3 classes"):
        resolve(["a", "b"], None, "detection", 3)


BOXES = Detections(
    np.array([[1.0, 2.125, 3.0, 4.0]], np.float32), np.array([0.123456], np.float32), np.array([1])
)
BOX = {"class_id": "1", "label": "truck", "score": 0.12346, "xyxy": [1.0, 2.12, 3.0, 4.0]}
MASK = Segmentation(np.array([[0, 0, 0], [1, 1, 2]], np.uint8))
CLASSES = Classification(np.array([1, 0]), np.array([0.75, 0.25], np.float32))


@pytest.mark.parametrize(
    ("kind", "result", "key", "expected"),
    [
        ("detection", BOXES, "boxes", [BOX]),
        (
            "segmentation",
            MASK,
            "class_shares",
            {"car": 0.5, "truck": 0.333333, "class_2": 0.166667},
        ),
        (
            "classification",
            CLASSES,
            "classes",
            [
                {"class_id": "1", "label": "truck", "score": 0.75},
                {"class_id": "0", "label": "car", "score": 0.25},
            ],
        ),
    ],
)
def test_results_as_values_and_nothing_by_the_same_key(kind, result, key, expected):
    found = describe_result(result, kind, ("car", "truck"))
    assert json.loads(json.dumps(found)) == {key: expected}
    assert describe_result(None, kind, ()) == {key: type(expected)()}


def test_true_numbers_that_say_nothing():
    found = labels.find_unlabelled(("sky", "Void", "road", "__ignore__"))
    assert found == {1, 3, 255}
    assert labels.find_unlabelled(()) == {255}
    assert labels.find_unlabelled(["road"] * 256) == set()


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("sky", "road", "unlabelled"), {2}),
        (("__background__", "car", "void"), {0, 2}),
        (("road", "lane"), {0}),
        (("road", "lane", "sky"), set()),
    ],
)
def test_classes_that_are_not_painted(names, found):
    assert labels.find_background(names) == found
