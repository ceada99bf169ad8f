# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Two runs compared frame by frame: counts and agreement by hand, the worst frame's picture."""

from __future__ import annotations

import json
from dataclasses import replace

import cv2
import numpy as np
import pytest
from ended_jobs import TASKS, make_record
from photos import write_photos

from jetson_dnn_rt.cli.main import main
from jetson_dnn_rt.cli.recorder import format_result
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.agree.command import FEW_FRAMES
from jetson_dnn_rt.nodes.tasks import drawing
from jetson_dnn_rt.nodes.tasks.drawing import mask_color
from jetson_dnn_rt.results import Classification, Detections, Segmentation
from jetson_dnn_rt.tasks import Outcome, Work

LEFT, RIGHT = (10, 10, 50, 50), (60, 10, 100, 50)
NEAR = (12, 10, 52, 50)  # IoU with LEFT 0.9
FAR = (40, 10, 80, 50)  # 0.14


def boxes(*places, kinds=None):
    count = len(places)
    scores = np.linspace(0.9, 0.5, count, dtype=np.float32)
    kinds = np.full(count, 2, np.int64) if kinds is None else np.array(kinds, np.int64)
    return Detections(np.array(places, np.float32).reshape(-1, 4), scores, kinds)


def mask(share):
    """A mask of two rows, of whose first one a share is class 1."""
    pixels = np.zeros((2, 10), np.uint8)
    pixels[0, : round(10 * share)] = 1
    return Segmentation(pixels)


GREY = np.zeros((96, 128, 3), np.uint8)


def drawn(number):
    """A picture that no other number has."""
    return np.random.default_rng(number).integers(0, 256, (96, 128, 3), np.uint8)


def write(path, results, task="detector", *, masks=False, files=(), show=lambda i: GREY, **more):
    """Lines of a run: a result for each frame, or the outcome of one that has none.

    `show` gives the picture of each frame, `more` further keys of the lines, from its number.
    """
    lines = []
    for i, result in enumerate(results):
        outcome, result = (result, None) if isinstance(result, Outcome) else (Outcome.MET, result)
        frame = Frame(show(i), "bgr8", i, i, file=dict(files).get(i, ""))
        record = make_record(task, i, outcome)
        line = json.loads(format_result(record, Work(frame, result), TASKS[task], masks=masks))
        line |= {key: make(i) for key, make in more.items()}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def run(capsys, *arguments):
    code = main(["agree", *map(str, arguments), "--json"])
    captured = capsys.readouterr()
    last = captured.out.splitlines()[-1] if captured.out else "null"
    return code, json.loads(last), captured.err


def test_boxes_are_matched_by_class_and_overlap(tmp_path, capsys):
    a = write(tmp_path / "a", [boxes(LEFT, RIGHT), boxes(LEFT), boxes(LEFT), boxes()])
    # The same; moved a little and one missing; of another class; one that A does not have.
    other = [boxes(NEAR), boxes(LEFT), boxes(LEFT, kinds=[0]), boxes(FAR)]
    b = write(tmp_path / "b", other)
    code, found, text = run(capsys, a, b)
    assert code == 0
    task = found["tasks"]["detector"]
    keys = ("frames", "objects_a", "objects_b", "matched", "missing", "extra")
    assert [task[key] for key in keys] == [4, 4, 4, 2, 2, 2]
    assert task["worst"] == {"frame": 2, "difference": 2}
    # Of class 2, the only one in A: scores 0.9 (right), 0.9 (right), 0.9 (wrong), of 4 boxes.
    assert task["agreement"] == pytest.approx(2 / 4 * 2 / 3)
    assert "they differ most in frame 2" in text
    assert run(capsys, a, a)[1]["tasks"]["detector"]["agreement"] == 1.0
    assert run(capsys, a, a)[1]["tasks"]["detector"]["worst"] is None


def test_a_skipped_frame_is_not_an_empty_one(tmp_path, capsys):
    a = write(tmp_path / "a", [boxes(LEFT), boxes(LEFT), boxes(), Outcome.FAILED])
    b = write(tmp_path / "b", [boxes(LEFT), Outcome.SKIPPED, Outcome.ABORTED, Outcome.FAILED])
    _, found, text = run(capsys, a, b)
    task = found["tasks"]["detector"]
    assert (task["frames"], task["agreement"], task["missing"]) == (1, 1.0, 0)
    assert task["only_in_a"] == {"skipped": 1, "aborted": 1}
    assert (task["only_in_b"], task["without_result"]) == ({}, 1)
    assert "2 frames have a result in A alone; in B: skipped 1, aborted 1" in text
    short = write(tmp_path / "short", [boxes(LEFT)])
    _, found, _ = run(capsys, short, a)
    assert found["tasks"]["detector"]["only_in_b"] == {"not there": 2}


def test_without_objects_in_a_the_agreement_is_unknown(tmp_path, capsys):
    a = write(tmp_path / "a", [boxes(), boxes()])
    for other in ([boxes(), boxes()], [boxes(LEFT), boxes()]):
        b = write(tmp_path / "b", other)
        code, found, text = run(capsys, a, b, "--at-least", "0")
        assert code == 1
        assert found["tasks"]["detector"]["agreement"] is None
        assert found["below"] == ["detector"]
        assert "unknown: no boxes in 2 frames of A" in text


def test_few_frames_are_said_to_be_few(tmp_path, capsys):
    few, enough = (
        write(tmp_path / str(n), [boxes(LEFT)] * n) for n in (FEW_FRAMES - 1, FEW_FRAMES)
    )
    assert "few frames were compared, 29 of them" in run(capsys, few, few)[2]
    assert "few frames" not in run(capsys, enough, enough)[2]


@pytest.mark.parametrize(("least", "code"), [("0.5", 0), ("0.51", 1)])
def test_less_than_is_wanted_is_exit_code_1(tmp_path, capsys, least, code):
    a = write(tmp_path / "a", [boxes(LEFT), boxes(RIGHT)])
    b = write(tmp_path / "b", [boxes(LEFT), boxes()])
    assert run(capsys, a, b, "--at-least", least)[0] == code


def test_masks_are_compared_where_they_are_stored(tmp_path, capsys):
    results = [mask(1), mask(1)], [mask(1), mask(0.5)]
    names = [tmp_path / "a", tmp_path / "b"]
    a, b = (write(n, r, "segmenter") for n, r in zip(names, results, strict=True))
    _, found, text = run(capsys, a, b)
    assert found["tasks"]["segmenter"]["agreement"] is None
    assert "write both with --masks" in text
    a, b = (write(n, r, "segmenter", masks=True) for n, r in zip(names, results, strict=True))
    _, found, _ = run(capsys, a, b, "--output", tmp_path / "out")
    task = found["tasks"]["segmenter"]
    # Of 40 pixels 20 are class 1 in A, 15 in B; 20 and 25 are class 0.
    assert task["agreement"] == pytest.approx((15 / 20 + 20 / 25) / 2)
    assert task["worst"]["frame"] == 1
    assert cv2.imread(found["pictures"]["segmenter"]).shape == (2, 10 + 4 + 10 + 4 + 10, 3)


def test_of_masks_the_pixels_that_differ_are_marked_and_the_background_is_not_drawn(
    tmp_path, capsys, monkeypatch
):
    labels = ("background", "road", "sky")
    task = replace(TASKS["segmenter"], labels=labels)
    monkeypatch.setitem(TASKS, "segmenter", task)
    left, right = np.zeros((2, 96, 128), np.uint8)
    left[:, :64], right[:, 64:] = 1, 2  # the left half in A alone, the right one in B alone,
    left[40:60, 30:100] = right[40:60, 30:100] = 1  # but here they are the same,
    right[40:60, 30:40], left[0:5, 126:] = 2, 1  # and here of another class
    right[60:] = left[60:] = 0
    a, b = (
        write(tmp_path / name, [Segmentation(pixels)], "segmenter", masks=True)
        for name, pixels in (("a", left), ("b", right))
    )
    texts = []
    monkeypatch.setattr(drawing.cv2, "putText", lambda image, text, *style: texts.append(text))
    _, found, _ = run(capsys, a, b, "--output", tmp_path / "out")
    picture = cv2.imread(found["pictures"]["segmenter"])
    of_a, of_b, both = picture[:, :128], picture[:, 132:260], picture[:, 264:]
    canvas = [40, 40, 40]
    assert of_a[30, 20].tolist() != canvas == of_a[30, 80].tolist()
    assert of_b[30, 80].tolist() != canvas == of_b[30, 20].tolist()
    places = {(30, 20): 1, (30, 80): 2, (50, 35): 3, (2, 127): 3}
    for place, kind in places.items():
        assert both[place].tolist() == list(mask_color(kind))
    dark = both[70, 120].tolist()
    assert both[50, 80].tolist() == dark
    assert max(dark) < 40
    share = np.mean(left != right)
    assert {"road", "sky", "only in A", "only in B", "of another class"} <= {*texts}
    assert f"{share:.1%} of the pixels differ" in texts
    assert "A: frame 0    background is not painted" in texts


def test_classes_are_compared_by_the_best(tmp_path, capsys):
    scores = np.float32([0.8, 0.2])
    car, bike = (Classification(np.array(ids), scores) for ids in ([2, 1], [1, 2]))
    a = write(tmp_path / "a", [car, car])
    b = write(tmp_path / "b", [car, bike])
    task = run(capsys, a, b)[1]["tasks"]["detector"]
    assert (task["metric"], task["agreement"], task["worst"]["frame"]) == ("top-1", 0.5, 1)


def test_the_worst_frame_is_drawn_on_the_photo_or_said_to_be_empty(tmp_path, capsys):
    folder = tmp_path / "photos"
    write_photos(folder, 3)
    names = sorted(file.name for file in folder.iterdir())
    first, second = (cv2.imread(str(folder / name)) for name in names[1:])
    given = {"files": [(0, names[1]), (1, names[2])], "show": lambda i: (first, second)[i]}
    a = write(tmp_path / "a", [boxes(LEFT), boxes(LEFT, RIGHT)], **given)
    # Found by the photo's name, though other frames came before.
    others = {
        "files": list(enumerate(["x", *names[1:]])),
        "show": lambda i: (GREY, first, second)[i],
    }
    b = write(tmp_path / "b", [boxes(), boxes(), boxes(LEFT)], **others)
    out = ("--output", tmp_path / "out")
    _, found, text = run(capsys, a, b, *out, "--source", f"images:{folder}")
    assert found["tasks"]["detector"]["worst"]["file"] == names[1]
    picture = cv2.imread(found["pictures"]["detector"])
    height, width = cv2.imread(str(folder / names[1])).shape[:2]
    assert picture.shape == (height, 2 * width + 4, 3)
    assert "empty canvas" not in text
    (folder / names[1]).write_bytes((folder / names[0]).read_bytes())
    code, _, text = run(capsys, a, b, *out, "--source", f"images:{folder}")
    assert code == 2
    assert f"its frame {names[1]} is not the picture that A was made of" in text
    _, found, text = run(capsys, a, b, *out)
    assert "on an empty canvas: give --source" in text
    assert cv2.imread(found["pictures"]["detector"]).shape == (320, 644, 3)


@pytest.mark.parametrize("name", ["../secret.png", "{folder}/secret.png", "a/../../secret.png"])
def test_results_name_no_photo_elsewhere(tmp_path, capsys, name):
    """Campaign 8: the names of photos in results are a stranger's."""
    cv2.imwrite(str(tmp_path / "secret.png"), GREY)
    (tmp_path / "photos").mkdir()
    write_photos(tmp_path / "photos", 1)
    given = {"files": [(0, name.format(folder=tmp_path))]}
    a = write(tmp_path / "a", [boxes(LEFT)], **given)
    b = write(tmp_path / "b", [boxes(RIGHT)], **given)
    out = ("--output", tmp_path / "out", "--source", f"images:{tmp_path / 'photos'}")
    code, _, text = run(capsys, a, b, *out)
    assert code == 2
    assert "is no file of that folder" in text


def test_a_video_is_read_up_to_the_frame(tmp_path, capsys):
    video = tmp_path / "drive.avi"
    writer = cv2.VideoWriter(str(video), cv2.VideoWriter.fourcc(*"MJPG"), 25.0, (128, 96))
    for grey in range(3):
        writer.write(np.full((96, 128, 3), 60 * grey, np.uint8))
    writer.release()
    show = lambda i: GREY + 60 * i  # noqa: E731 - uint8
    a = write(tmp_path / "a", [boxes(LEFT), boxes(LEFT), boxes(LEFT)], show=show)
    b = write(tmp_path / "b", [boxes(LEFT), boxes(LEFT), boxes()], show=show)
    given = (a, b, "--output", tmp_path / "out", "--source", f"video:{video}")
    _, found, _ = run(capsys, *given)
    picture = cv2.imread(found["pictures"]["detector"])
    assert abs(int(picture[90, 120, 0]) - 120) < 4
    video.unlink()
    code, _, text = run(capsys, *given)
    assert code == 2
    assert "drive.avi is not there" in text


def test_of_several_variants_of_a_frame_one_is_named(tmp_path, capsys):
    """Lines of `evaluate --mode sequential`."""
    lines = [
        {"stream": "s", "frame": i, "stamp_ns": i, "task": "detector", "variant": name, **more}
        for i in range(2)
        for name, more in (("x", {"boxes": []}), ("y", {"boxes": [], "failed": "why"}))
    ]
    box = {"class_id": "2", "label": "car", "score": 0.5, "xyxy": LEFT}
    lines[0]["boxes"] = [box]
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, lines)))
    code, _, text = run(capsys, tmp_path, tmp_path)
    assert code == 2
    assert "by variant (x, y): choose with --variants" in text
    # Of a run, which names no variant.
    of_run = write(tmp_path / "run", [boxes(LEFT), boxes()])
    _, found, text = run(capsys, of_run, tmp_path, "--variants", "", "x")
    assert (found["tasks"]["detector"]["agreement"], "was not checked" in text) == (1.0, True)
    _, found, _ = run(capsys, tmp_path, tmp_path, "--variants", "x", "x")
    assert found["tasks"]["detector"]["agreement"] == 1.0
    _, found, _ = run(capsys, tmp_path, tmp_path, "--variants", "x", "y")
    assert found["tasks"]["detector"]["only_in_a"] == {"failed": 2}
    code, _, text = run(capsys, tmp_path, tmp_path, "--variants", "x", "z")
    assert (code, "holds no result of variant z, but of x, y" in text) == (2, True)


def in_bag(name):
    """Keys of the lines of `evaluate`: the stamps of a bag, its name and a variant."""
    values = {"stream": name, "stamp_ns": None, "variant": "full@null"}
    return {key: lambda i, v=v: v or 10**18 + i for key, v in values.items()}


def test_a_run_is_compared_with_an_evaluation_of_the_same_frames(tmp_path, capsys):
    """They have other stamps and streams: by their numbers, where the pictures are the same."""
    found = [boxes(LEFT), boxes(RIGHT), boxes(LEFT)]
    a = write(tmp_path / "a", found, show=drawn)
    b = write(tmp_path / "b", found, show=drawn, **in_bag("x#/image"))
    _, one, text = run(capsys, a, b)
    task = one["tasks"]["detector"]
    assert (task["agreement"], task["frames"], task["matched_by"]) == (1.0, 3, "number")
    assert (task["left_out"], task["unchecked"], "left out" in text) == (0, 0, False)
    # Two copies of the bag, in folders of other names.
    c = write(tmp_path / "c", found, show=drawn, **in_bag("y#/image"))
    assert run(capsys, b, c)[1]["tasks"]["detector"]["matched_by"] == "stamp"
    # The bag from its second frame on: the numbers are those of other frames.
    late = write(tmp_path / "late", found, show=lambda i: drawn(i + 1), **in_bag("x#/image"))
    _, one, text = run(capsys, a, late)
    task = one["tasks"]["detector"]
    assert (task["agreement"], task["frames"], task["left_out"]) == (None, 0, 3)
    assert "unknown: no frame is the same picture in A and B" in text
    assert "3 frames of one number are other pictures in A than in B" in text
    assert "frame 0: the thumbnails differ by" in text
    # The last frame alone is another.
    other = write(tmp_path / "other", found, show=lambda i: drawn(i % 2))
    task = run(capsys, a, other)[1]["tasks"]["detector"]
    assert (task["agreement"], task["frames"], task["left_out"]) == (1.0, 2, 1)
    assert task["only_in_a"] == {}
    small = write(tmp_path / "small", found, show=lambda i: drawn(i)[::2, ::2])
    assert "frame 0: 128x96 pixels in A, 64x48 in B" in run(capsys, a, small)[2]


def test_frames_of_one_clock_go_by_their_stamps(tmp_path, capsys):
    """A bag that was played to a subscriber, which did not get its first two frames."""
    places = [boxes(LEFT), boxes(RIGHT), boxes(LEFT, RIGHT), boxes(LEFT)]
    bag = write(tmp_path / "bag", places, show=drawn, **in_bag("x#/image"))
    stamps = {"stamp_ns": lambda i: 10**18 + i + 2}
    heard = write(tmp_path / "heard", places[2:], show=lambda i: drawn(i + 2), **stamps)
    task = run(capsys, bag, heard)[1]["tasks"]["detector"]
    assert (task["matched_by"], task["frames"], task["agreement"]) == ("stamp", 2, 1.0)
    assert task["only_in_a"] == {"not there": 2}


def test_jpeg_is_the_same_picture(tmp_path, capsys):
    smooth = [cv2.resize(drawn(i)[:6, :8], (128, 96)) for i in range(2)]
    jpeg = [cv2.imdecode(cv2.imencode(".jpg", image)[1], cv2.IMREAD_COLOR) for image in smooth]
    a = write(tmp_path / "a", [boxes(LEFT)] * 2, show=lambda i: smooth[i])
    b = write(tmp_path / "b", [boxes(LEFT)] * 2, show=lambda i: jpeg[i])
    assert run(capsys, a, b)[1]["tasks"]["detector"]["frames"] == 2


def test_it_is_said_why_no_frame_is_the_same(tmp_path, capsys):
    a = write(tmp_path / "a", [boxes(LEFT)] * 2, files=[(0, "1.jpg"), (1, "2.jpg")])
    b = write(tmp_path / "b", [boxes(LEFT)], files=[(0, "3.jpg")])
    text = "no frame of A is in B, by file: A has 1.jpg to 2.jpg, B has 3.jpg to 3.jpg"
    assert text in run(capsys, a, b)[2]
    streams = {"stream": lambda i: "xy"[i]}
    b = write(tmp_path / "b", [boxes(LEFT)] * 2, **streams)
    text = "the streams are one without a name in A, x, y in B: compare results of one stream"
    assert text in run(capsys, a, b)[2]
    assert run(capsys, b, b)[1]["tasks"]["detector"]["frames"] == 2
    twice = tmp_path / "twice"
    twice.write_text((tmp_path / "b").read_text() * 2)
    code, _, text = run(capsys, twice, a)
    assert code == 2
    assert "several results of frame 0 of detector, of one variant: write them without --" in text


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (None, [], "cannot read"),
        ("", [], "holds no result"),
        ("not json", [], "line 1: no result of `run --results`"),
        ('{"task": "detector", "frame": 0}', [], "boxes, class_shares or classes"),
        ("[1, 2]", [], "line 1"),
        ('{"task": "d", "frame": 0, "thumbnail": "AAAA", "boxes": []}', [], "256 bytes: 3"),
        ('{"task": "d", "frame": 0, "boxes": [{"class_id": "1e9"}]}', [], "line 1"),
        ('{"task": "other", "frame": 0, "boxes": []}', [], "no task to compare: A has detector"),
        ('{"task": "detector", "frame": 0, "classes": []}', [], "detection in the one"),
        (
            '{"task": "detector", "frame": 0, "boxes": []}',
            ["--source", "video:x"],
            "--source is for the picture",
        ),
    ],
)
def test_what_cannot_be_compared_is_said(tmp_path, capsys, content, options, said):
    a = write(tmp_path / "a", [boxes(LEFT)])
    if content is not None:
        (tmp_path / "b").write_text(content)
    code, _, text = run(capsys, a, tmp_path / "b", *options)
    assert code == 2
    assert said in text.splitlines()[-1]
