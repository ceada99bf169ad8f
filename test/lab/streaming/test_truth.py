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
from jetson_dnn_rt.lab.streaming.frame_names import FrameName
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


ANY = "any#/topic"
BAG = [FrameName(ANY, number) for number in range(3)]


def find_of(truth, task="detector", kind="detection", labels=LABELS):
    return truth.of_tasks({task: (kind, labels)})[task]


def photos(*files, stream="drives/photos#/image_raw"):
    return [FrameName(stream, number, file) for number, file in enumerate(files)]


def test_streams_by_sequence_and_number(tmp_path):
    images = [
        {"id": 5, "sid": 1, "fid": 0, "name": "x/000.jpg"},
        {"id": 6, "sid": 1, "fid": 4, "name": "x/004.jpg"},
        {"id": 2, "sid": 0, "fid": 4, "name": "y/004.jpg"},
    ]
    # A tram is no class of the network: it cannot find one, and is not asked to.
    labels = [label(1, 6), label(2, 6, 7), label(3, 2, 7)]
    path = write(tmp_path / "a.json", images, labels, sequences=["monday", "tuesday"])
    bags = [f"drives/{day}#/image_raw" for day in ("monday", "tuesday", "friday")]
    truth = Truth(path, [FrameName(bag, number) for bag in bags for number in range(6)])
    find = find_of(truth)
    assert truth.notes == ["detector: labels of classes that it lacks do not count: tram"]
    monday, tuesday, friday = bags
    there = find(tuesday, 4)
    assert there.boxes.tolist() == [[1, 2, 31, 22]]
    assert there.class_ids.tolist() == [2]
    assert len(find(tuesday, 0)) == 0
    assert len(find(monday, 4)) == 0
    assert find(monday, 0) is None
    assert find(friday, 4) is None


def test_one_sequence_in_the_order_of_ids_and_photos_by_file(tmp_path):
    images = [{"id": 9, "file_name": "b.jpg"}, {"id": 4, "file_name": "sub/a.jpg"}]
    path = write(tmp_path / "a.json", images, [label(1, 9)])
    find = find_of(Truth(path, BAG))
    assert [len(find(ANY, number)) for number in (0, 1)] == [0, 1]
    assert find(ANY, 2) is None
    named = photos("c.jpg", "b.jpg", "a.jpg")
    find = find_of(Truth(path, named))
    assert find(named[0].stream, 0) is None
    assert [len(find(named[0].stream, number)) for number in (1, 2)] == [1, 0]


def test_labels_of_one_name_are_told_apart_by_folders(tmp_path):
    images = [{"id": 0, "file_name": "a/0.png"}, {"id": 1, "file_name": "x/b/0.png"}]
    path = write(tmp_path / "a.json", images, [label(1, 1)])
    one, other = (photos("0.png", stream=f"drives/{name}#/image_raw")[0] for name in "ab")
    find = find_of(Truth(path, [one, other]))
    assert [len(find(frame.stream, 0)) for frame in (one, other)] == [0, 1]
    # Both labels are as near to a photo in another folder, and one label to both photos.
    third = photos("0.png")
    with pytest.raises(ConfigurationError, match=r"photos/0.png belongs to a/0.png or x/b/0.png"):
        Truth(path, third)
    path = write(tmp_path / "b.json", [{"id": 0, "file_name": "0.png"}], [label(1, 0)])
    with pytest.raises(ConfigurationError, match=r"^0.png belongs to drives/a/0.png or drives/b"):
        Truth(path, [one, other])
    for name, number in (("a", 0), ("b", 1)):
        (tmp_path / name).mkdir()
        cv2.imwrite(str(tmp_path / name / "0.png"), np.full((6, 8), number, np.uint8))
    find = find_of(Truth(tmp_path, [one, other]), "segmenter", "segmentation", ("road", "sky"))
    assert [find(frame.stream, 0).mask.max() for frame in (one, other)] == [0, 1]


def test_labels_of_one_stream_for_two_bags_are_refused(tmp_path):
    path = write(tmp_path / "a.json", [{"id": 0}], [label(1, 0)])
    with pytest.raises(ConfigurationError, match="labels of one stream, but there are any#"):
        Truth(path, [*BAG, FrameName("other#/topic", 0)])


def test_labels_that_no_frame_has(tmp_path):
    path = write(tmp_path / "a.json", [{"id": 0, "file_name": "0.jpg"}], [label(1, 0)])
    message = r"no frame has a label: the first frame is drives/photos/1.jpg, the first label 0.j"
    with pytest.raises(ConfigurationError, match=message + ".*; fix: name labels"):
        Truth(path, photos("1.jpg"))
    with pytest.raises(ConfigurationError, match="the first frame is 7 of any#/topic"):
        Truth(path, [FrameName(ANY, 7)])
    cv2.imwrite(str(tmp_path / "a.png"), IMAGE[..., 0])
    with pytest.raises(ConfigurationError, match=r"the first label .*a\.png"):
        Truth(tmp_path, photos("1.jpg"))
    path = write_results(tmp_path / "a.jsonl", "detector", [Detections.empty()])
    with pytest.raises(ConfigurationError, match="the first label 0 of a run"):
        Truth(path, [FrameName(ANY, 7)])


def test_tasks_that_have_no_truth(tmp_path):
    truth = Truth(write(tmp_path / "a.json", [{"id": 0}], [label(1, 0)]), BAG)
    for kind in ("segmentation", "classification"):
        with pytest.raises(ConfigurationError, match=r"no truth of any task \(other\); fix"):
            find_of(truth, "other", kind)
    with pytest.raises(ConfigurationError, match="no class of the truth: cat; car, tram; fix"):
        find_of(truth, labels=("cat",))
    with pytest.raises(ConfigurationError, match="no truth of any task"):
        StreamingJudge(truth, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "not an object that holds images, annotations, categories"),
        ('{"categories": [], "images": []}', "not an object that holds images"),
    ],
)
def test_files_that_are_none(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"no COCO file of boxes .*{message}.*; fix: "):
        Truth(path, BAG)
    with pytest.raises(ConfigurationError, match=r"cannot read .*; fix: give a file of boxes"):
        Truth(tmp_path / "b.json", BAG)


def test_crowds_are_refused(tmp_path):
    path = write(tmp_path / "a.json", [{"id": 0}], [label(8, 0, iscrowd=1)])
    with pytest.raises(ConfigurationError, match="annotation 8 is a crowd"):
        Truth(path, BAG)


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
    truth = Truth(path, BAG)
    find = find_of(truth)
    assert find(ANY, 0).boxes.tolist() == [[1, 2, 31, 22]]
    assert find(ANY, 1) is None
    tasks = dict.fromkeys(("detector", "other"), ("detection", LABELS))
    assert list(truth.of_tasks(tasks)) == ["detector"]
    with pytest.raises(ConfigurationError, match="task detector is detection there"):
        find_of(truth, kind="segmentation")


def test_results_of_two_variants_say_what_to_do(tmp_path):
    path = write_results(tmp_path / "a.jsonl", "detector", [Detections.empty()] * 2)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    both = [{**line, "frame": 0, "variant": name} for line, name in zip(lines, "ab", strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in both), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="again with one, --variant TASK=NAME") as raised:
        Truth(path, BAG)
    assert "--variants" not in str(raised.value)


def test_masks_must_be_in_the_results(tmp_path):
    mask = Segmentation(np.ones((60, 80), np.uint8))
    path = write_results(tmp_path / "a.jsonl", "segmenter", [mask])
    with pytest.raises(ConfigurationError, match="has no masks; fix: write it with --masks"):
        find_of(Truth(path, BAG), "segmenter", "segmentation", ("road", "sky"))
    path = write_results(tmp_path / "b.jsonl", "segmenter", [mask], masks=True)
    find = find_of(Truth(path, BAG), "segmenter", "segmentation", ("road", "sky"))
    assert find(ANY, 0).mask.min() == 1


def test_jobs_are_judged_at_their_captures(tmp_path):
    """Frames at 0, 100, 200; the answer to the second comes at 250: after the last instant."""
    images = [{"id": number} for number in range(3)]
    path = write(tmp_path / "a.json", images, [label(number, number) for number in range(3)])
    task = SimpleNamespace(name="detector", model=SimpleNamespace(kind="detection", labels=LABELS))
    judge = StreamingJudge(Truth(path, BAG), [task])
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
    cv2.imwrite(str(tmp_path / "a.png"), np.full((60, 80), 1, np.uint8))
    named = photos("c.jpg", "a.jpg")
    truth = Truth(tmp_path, [*named, FrameName(ANY, 0)])
    find = find_of(truth, "segmenter", "segmentation", ("road", "sky"))
    assert np.unique(find(named[0].stream, 1).mask).tolist() == [1]
    assert find(named[0].stream, 0) is None
    assert find(ANY, 0) is None
    with pytest.raises(ConfigurationError, match="no truth of any task"):
        find_of(truth)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match=r"neither results\.jsonl nor masks .*; fix"):
        Truth(tmp_path / "empty", named)


@pytest.mark.parametrize(
    ("mask", "found"), [(IMAGE, "uint8, 3"), (IMAGE[..., 0].astype(np.uint16), "uint16, 1")]
)
def test_pictures_that_are_no_masks_are_refused_in_front(tmp_path, mask, found):
    cv2.imwrite(str(tmp_path / "b.png"), mask)
    message = rf"b\.png is no mask \({found} channels\); fix: write one channel of 8 bits"
    with pytest.raises(ConfigurationError, match=message):
        Truth(tmp_path, photos("b.jpg"))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 200), r"a\.png has pixels of class 200, but task s has the classes 0 to 2; fix"),
        ((1, 3), r"a\.png has pixels of class 3"),
        ((2, 255), "no pixel has a class of task s, all are 2, 255; fix"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(tmp_path, numbers, message):
    cv2.imwrite(str(tmp_path / "a.png"), np.array([numbers], np.uint8))
    truth = Truth(tmp_path, photos("a.jpg"))
    with pytest.raises(ConfigurationError, match=message):
        find_of(truth, "s", "segmentation", ("road", "sky", "void"))


def test_masks_are_read_after_the_run(tmp_path):
    """The observer is on the delivery thread of the run that is timed."""
    labels = ("road", "sky")
    cv2.imwrite(str(tmp_path / "a.png"), np.array([[0, 1, 1, 255]], np.uint8))
    (frame,) = photos("a.jpg")
    task = SimpleNamespace(
        name="segmenter", model=SimpleNamespace(kind="segmentation", labels=labels)
    )
    judge = StreamingJudge(Truth(tmp_path, [frame]), [task])
    observe = judge.observing(frame.stream, 0, lambda job, work: None)
    (tmp_path / "a.png").rename(tmp_path / "away.png")
    job = replace(make_record("segmenter", 0), capture_ns=0, completion_ns=9)
    observe(job, Work(Frame(IMAGE, "bgr8", 0, 0), Segmentation(np.zeros((1, 4), np.uint8))))
    (tmp_path / "away.png").rename(tmp_path / "a.png")
    judge.end_stream()
    found = judge.to_dict()["segmenter"]
    assert (found["unanswered"], found["judged"]) == (1, 0.75)
    assert found["own_frames"] == pytest.approx((1 / 3 + 0) / 2)
