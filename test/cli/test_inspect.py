# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`inspect` on good and bad files, and the pictures it draws."""

from __future__ import annotations

import json
import re

import cv2
import numpy as np
import pytest
from networks import make_onnx

from jetson_dnn_rt.cli.inspect import count_pieces, describe_results, format_yaml, list_candidates
from jetson_dnn_rt.cli.main import main
from jetson_dnn_rt.config.parameter_file import read_parameter_file
from jetson_dnn_rt.config.perception import read_task
from jetson_dnn_rt.demo.builtin import read
from jetson_dnn_rt.models.heads.registry import LAYOUTS
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.results import Segmentation


@pytest.fixture
def detector(tmp_path):
    """The built-in detector as a stranger's file."""
    path = tmp_path / "detector.onnx"
    path.write_bytes(read("detector"))
    return path


def run(capsys, *arguments):
    """Exit code, the lines of stdout by the names in front, and stderr."""
    code = main(["inspect", *map(str, arguments)])
    text, errors = capsys.readouterr()
    values, name = {}, ""
    for line in text.splitlines():
        name = line[:15].strip() or name
        values.setdefault(name, []).append(line[16:])
    return code, values, errors


def test_what_a_file_is_taken_for(capsys, detector):
    code, values, errors = run(capsys, f"onnx:{detector}")
    assert code == 0
    assert values["inputs"] == ["'image' FLOAT [1, 3, 240, 320]"]
    assert [line.split(",")[0] for line in values["outputs"]] == [
        "boxes float32 [1",
        "scores float32 [1",
    ]
    assert values["head"][0].startswith("boxes_scores: 1200 boxes with ")
    assert values["kind"] == ["detection"]
    assert values["labels"][0].startswith("5 (the file): car, truck, ")
    assert "(ASSUMED: color, scale, mean, std)" in values["preprocessing"][0]
    assert any(line.startswith("onnxruntime-fp32: ") for line in values["back ends"])
    assert all("cannot" not in line for line in values["back ends"])
    assert "tvm: built beforehand: jetson-dnn-rt build" in values["back ends"] or not errors


def test_metadata_are_shown_and_labels_come_from_the_file(capsys, tmp_path):
    metadata = {
        "names": "{0: 'road', 1: 'car', 2: 'sky', 3: 'sign', 4: 'lane'}",
        "note": "x" * 999,
    }
    path = make_onnx(tmp_path / "m.onnx", metadata=metadata)
    code, values, _ = run(capsys, f"onnx:{path}")
    assert code == 0
    assert values["labels"] == ["5 (the file): road, car, sky, sign, lane"]
    assert values["metadata"][1] == f"note: {'x' * 400}..."


def test_a_model_without_a_head_is_shown_with_the_way_out(capsys, tmp_path):
    path = make_onnx(tmp_path / "m.onnx", classes=300)
    code = main(["inspect", f"onnx:{path}", "--json"])
    text, errors = capsys.readouterr()
    assert code == 1
    found = json.loads(text)
    assert found["head"] is None
    assert "fit no known head" in found["error"]
    assert "fix: set head to package.module:Class" in found["error"]
    assert "'image0' FLOAT [1, 3, 32, 48]" in errors
    for layout in LAYOUTS.values():
        assert f"{layout.name}: {layout.form}" in errors


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_bytes(b"\x08\x07" * 99), "damaged or no"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: make_onnx(path, shape=(1, 1, 32, 48)), "needed is [1, 3, H, W]"),
        (lambda path: make_onnx(path, shape=(1, 3, "h", "w")), "input_size: [480, 640]"),
        (lambda path: make_onnx(path, inputs=2), "needed is one image"),
        (lambda path: path.mkdir(), "not a regular file"),
    ],
)
def test_bad_files_are_one_line(capsys, tmp_path, make, words):
    path = tmp_path / "m.onnx"
    make(path)
    code, _, errors = run(capsys, f"onnx:{path}")
    assert code == 1
    assert words in errors
    assert "Traceback" not in errors


def test_the_right_preprocessing_is_seen_and_pasted(capsys, detector, tmp_path):
    """The built-in detector takes rgb from 0 to 1."""
    output = tmp_path / "sheets"
    arguments = ("--frames", "synthetic:7", "--count", 2, "--output", output, "--pick", 2)
    code = main(["inspect", f"onnx:{detector}", *map(str, arguments)])
    text, _ = capsys.readouterr()
    assert code == 0
    assert sorted(path.name for path in output.iterdir()) == [
        "preprocessing_1.png",
        "preprocessing_2.png",
    ]
    sheet = cv2.imread(str(output / "preprocessing_1.png"))
    assert sheet.shape == (2 * (26 + 360), 3 * 480, 3)
    (taken,) = [line for line in text.splitlines() if "<- taken now" in line]
    assert "2: rgb 0-1" in taken
    tiles = [sheet[26:386, 480 * i : 480 * (i + 1)] for i in range(3)]
    assert not np.array_equal(tiles[0], tiles[1])  # what is drawn differs
    pasted = text[text.index("# rgb 0-1") :]
    assert "preprocessing.scale: 0.0039215686\n" in pasted
    lines = "\n".join(f"        {line}" for line in pasted.splitlines()[1:])
    path = tmp_path / "pasted.yaml"
    path.write_text(f"detector:\n    ros__parameters:\n{lines}\n")
    task = read_task(read_parameter_file(path), "detector")
    model = load_model(f"onnx:{detector}", preprocessing=task.preprocessing())
    assert model.assumed == ()
    assert model.preprocessing.scale == pytest.approx(1 / 255, rel=1e-6)


def test_masks_have_their_pieces_and_classes_in_the_table_and_the_sheet(
    capsys, tmp_path, monkeypatch
):
    """With pixels in a wrong range the built-in segmenter's mask crumbles."""
    texts = []
    put = cv2.putText
    monkeypatch.setattr(
        cv2, "putText", lambda image, text, *style: (texts.append(text), put(image, text, *style))
    )
    arguments = ("--frames", "synthetic:7", "--count", "1", "--output", str(tmp_path))
    assert main(["inspect", "builtin:segmenter", *arguments]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if " pieces, " in line]
    found = [re.fullmatch(r"  \d: (\w+ \S+) +((\d+) pieces, .*?)(  <- .*)?", x) for x in lines]
    pieces = {one[1]: int(one[3]) for one in found}
    assert [one[1] for one in found if one[4]] == ["rgb 0-1"]
    assert len(pieces) == 6
    for name in ("rgb 0-255", "bgr 0-255", "rgb ImageNet", "bgr ImageNet"):
        assert pieces[name] > 4 * pieces["rgb 0-1"]
    # Of one picture the table and the sheet say the same, below the name.
    assert {one[2] for one in found} <= {*texts}
    sheet = cv2.imread(str(tmp_path / "preprocessing_1.png"))
    assert sheet.shape == (2 * (2 * 26 + 360), 3 * 480, 3)


def test_pieces_are_areas_of_one_class():
    pixels = np.zeros((6, 8), np.uint8)
    assert count_pieces(pixels) == 1
    pixels[:, 3] = 2  # two pieces of class 0
    pixels[0, 0], pixels[1, 1], pixels[5, 7] = 1, 1, 1  # corners connect
    assert count_pieces(pixels) == 2 + 1 + 2
    assert count_pieces(np.full((2, 2), 255, np.uint8)) == 1
    several = Segmentation(pixels, name="da", others=(Segmentation(pixels * 0, name="ll"),))
    text = "da: 5 pieces, a 81 %, c 12 %, b 6 %; ll: 1 pieces, a 100 %"
    assert describe_results([several], ("a", "b", "c")) == text
    twice = [Segmentation(pixels), Segmentation(pixels * 0 + 3)]
    text = "3 pieces, class_3 50 %, class_0 41 %, class_2 6 %, 1 more"
    assert describe_results(twice, ()) == text


def test_candidates_are_distinct_and_keep_the_resize():
    known = Preprocessing(32, 48, "letterbox_center")
    candidates = list_candidates(known)
    assert len({one.preprocessing for one in candidates}) == len(candidates) == 6
    assert {one.preprocessing.resize for one in candidates} == {"letterbox_center"}
    assert known in [one.preprocessing for one in candidates]
    rgb, bgr = (candidates[i].preprocessing for i in (2, 5))
    assert rgb.mean == bgr.mean[::-1] == (0.485, 0.456, 0.406)
    assert "preprocessing.mean: [0.485, 0.456, 0.406]" in format_yaml(rgb)
    assert "preprocessing.scale: 1.0" in format_yaml(candidates[0].preprocessing)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--confidence", "2"), "--confidence must be in [0, 1]"),
        (("--pick", "7", "--frames", "synthetic"), "--pick must be in [1, 6]"),
        (("--pick", "2"), "give --frames, too"),
        (("--outputs", "x"), "no output 'x'"),
        (("--head", "x"), "head 'x' is unknown"),
    ],
)
def test_options_that_cannot_be_used(capsys, detector, arguments, words):
    code = main(["inspect", f"onnx:{detector}", *arguments])
    text, errors = capsys.readouterr()
    assert code in (1, 2)
    assert words in text + errors
