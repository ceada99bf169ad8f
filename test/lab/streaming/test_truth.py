# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The truth of frames: COCO's JSON with and without sequences, and results in its place."""

import json
from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from ended_jobs import TASKS, make_record

from jetson_dnn_rt.cli.recorder import format_result
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.streaming.judge import StreamingJudge
from jetson_dnn_rt.lab.streaming.truth import Truth
from jetson_dnn_rt.results import Detections, Segmentation
from jetson_dnn_rt.tasks import Outcome, Work

IMAGE = np.zeros((60, 80, 3), np.uint8)
LABELS = ("person", "bicycle", "Car")
CATEGORIES = [{"id": 3, "name": "car"}, {"id": 7, "name": "tram"}]
BOX = [1, 2, 30, 20]


def label(number, image, category=3, **more):
    return {"id": number, "image_id": image, "category_id": category, "bbox": BOX, **more}


def write(path, images, annotations, **more):
    held = {"images": images, "annotations": annotations, "categories": CATEGORIES, **more}
    path.write_text(json.dumps(held), encoding="utf-8")
    return path


def test_streams_by_sequence_and_number(tmp_path):
    images = [
        {"id": 5, "sid": 1, "fid": 0, "name": "x/000.jpg"},
        {"id": 6, "sid": 1, "fid": 4, "name": "x/004.jpg"},
        {"id": 2, "sid": 0, "fid": 4, "name": "y/004.jpg"},
    ]
    # A tram is no class of the network: it cannot find one, and is not asked to.
    labels = [label(1, 6), label(2, 6, 7), label(3, 2, 7)]
    path = write(tmp_path / "a.json", images, labels, sequences=["monday", "tuesday"])
    find = Truth(path).of_task("detector", "detection", LABELS)
    there = find("drives/tuesday#/image_raw", 4, "")
    assert there.boxes.tolist() == [[1, 2, 31, 22]]
    assert there.class_ids.tolist() == [2]
    assert len(find("drives/tuesday#/image_raw", 0, "")) == 0
    assert len(find("drives/monday#/image_raw", 4, "")) == 0
    assert find("drives/monday#/image_raw", 0, "") is None
    assert find("drives/friday#/image_raw", 4, "") is None


def test_one_sequence_in_the_order_of_ids_and_photos_by_file(tmp_path):
    images = [{"id": 9, "file_name": "b.jpg"}, {"id": 4, "file_name": "sub/a.jpg"}]
    find = Truth(write(tmp_path / "a.json", images, [label(1, 9)])).of_task(
        "detector", "detection", LABELS
    )
    assert [len(find("any#/topic", number, "")) for number in (0, 1)] == [0, 1]
    assert len(find("any#/topic", 0, "b.jpg")) == 1
    assert find("any#/topic", 2, "") is None
    assert find("any#/topic", 0, "c.jpg") is None


def test_tasks_that_have_no_truth(tmp_path):
    truth = Truth(write(tmp_path / "a.json", [{"id": 0}], [label(1, 0)]))
    assert truth.of_task("segmenter", "segmentation", LABELS) is None
    assert truth.of_task("sorter", "classification", LABELS) is None
    with pytest.raises(ConfigurationError, match="no class of the truth: cat; car, tram"):
        truth.of_task("detector", "detection", ("cat",))
    with pytest.raises(ConfigurationError, match="no truth of any task"):
        StreamingJudge(truth, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"categories": []}', "KeyError: 'annotations'"),
    ],
)
def test_files_that_are_none(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"no COCO file of boxes .*{message}"):
        Truth(path)
    with pytest.raises(ConfigurationError, match="cannot read"):
        Truth(tmp_path / "b.json")


def test_crowds_are_refused(tmp_path):
    path = write(tmp_path / "a.json", [{"id": 0}], [label(8, 0, iscrowd=1)])
    with pytest.raises(ConfigurationError, match="annotation 8 is a crowd"):
        Truth(path)


def write_results(path, task, results, **more):
    lines = []
    for number, result in enumerate(results):
        work = Work(Frame(IMAGE, "bgr8", number, number), result)
        outcome = Outcome.SKIPPED if result is None else Outcome.MET
        record = make_record(task, number, outcome)
        lines.append(format_result(record, work, TASKS[task], **more) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_results_stand_in_for_labels(tmp_path):
    ones = np.ones(1, np.float32)
    found = Detections(np.array([[1, 2, 31, 22]], np.float32), ones, np.array([2]))
    path = write_results(tmp_path / "a.jsonl", "detector", [found, None])
    truth = Truth(path)
    find = truth.of_task("detector", "detection", LABELS)
    assert find("any#/topic", 0, "").boxes.tolist() == [[1, 2, 31, 22]]
    assert find("any#/topic", 1, "") is None
    assert truth.of_task("other", "detection", LABELS) is None
    with pytest.raises(ConfigurationError, match="task detector is detection there"):
        truth.of_task("detector", "segmentation", LABELS)


def test_masks_must_be_in_the_results(tmp_path):
    mask = Segmentation(np.ones((60, 80), np.uint8))
    path = write_results(tmp_path / "a.jsonl", "segmenter", [mask])
    with pytest.raises(ConfigurationError, match="has no masks; fix: write it with --masks"):
        Truth(path).of_task("segmenter", "segmentation", ("road", "sky"))
    path = write_results(tmp_path / "b.jsonl", "segmenter", [mask], masks=True)
    find = Truth(path).of_task("segmenter", "segmentation", ("road", "sky"))
    assert find("any#/topic", 0, "").mask.min() == 1


def test_jobs_are_judged_at_their_captures(tmp_path):
    """Frames at 0, 100, 200; the answer to the second comes at 250: after the last instant."""
    images = [{"id": number} for number in range(3)]
    path = write(tmp_path / "a.json", images, [label(number, number) for number in range(3)])
    task = SimpleNamespace(name="detector", model=SimpleNamespace(kind="detection", labels=LABELS))
    judge = StreamingJudge(Truth(path), [task])
    passed = []
    observe = judge.observing("any#/topic", 10, lambda job, work: passed.append(job.sequence))
    right = Detections(
        np.array([[1, 2, 31, 22]], np.float32), np.ones(1, np.float32), np.array([2])
    )
    for number, outcome, end_ns in ((0, "met", 90), (1, "met", 250), (2, "superseded", 260)):
        job = replace(
            make_record("detector", 10 + number, Outcome(outcome)),
            capture_ns=100 * number, completion_ns=end_ns,
        )  # fmt: skip
        observe(job, Work(Frame(IMAGE, "bgr8", 0, 10 + number), right))
    observe(make_record("other"), Work(Frame(IMAGE, "bgr8", 0, 0)))
    judge.end_stream()
    found = judge.to_dict()["detector"]
    assert passed == [10, 11, 12, 0]
    assert (found["instants"], found["unanswered"], found["own_frames"]) == (3, 1, 1.0)
    assert found["value"] == pytest.approx(67 / 101, abs=1e-12)


def test_masks_of_photos_by_name(tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), np.full((60, 80), 7, np.uint8))
    cv2.imwrite(str(tmp_path / "b.png"), IMAGE)
    truth = Truth(tmp_path)
    find = truth.of_task("segmenter", "segmentation", ("road", "sky"))
    assert np.unique(find("photos#/image_raw", 3, "a.jpg").mask).tolist() == [7]
    assert find("photos#/image_raw", 0, "c.jpg") is None
    assert find("drive#/image_raw", 0, "") is None
    assert truth.of_task("detector", "detection", LABELS) is None
    with pytest.raises(ConfigurationError, match=r"b\.png is no mask: needed is one channel"):
        find("photos#/image_raw", 1, "b.jpg")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match=r"neither results\.jsonl nor masks"):
        Truth(tmp_path / "empty")
