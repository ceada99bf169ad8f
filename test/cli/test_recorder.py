# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The recorder: result lines, trace, the frame for the picture."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from ended_jobs import TASKS, make_record
from small_disk import free_bytes, mount_small_disk

from jetson_dnn_rt.cli import recorder as recorder_module
from jetson_dnn_rt.cli.recorder import QUEUE_LIMIT, Recorder, format_result
from jetson_dnn_rt.cli.run_report import describe_use
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Classification, Detections, Segmentation
from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.tasks import Outcome, Work
from jetson_dnn_rt.traces.reader import open_trace


def make_frame(sequence=0):
    image = np.zeros((4, 8, 3), np.uint8)
    return Frame(image, "bgr8", 1_000 + sequence, sequence, "camera")


def make_boxes(count):
    boxes = np.array([[0, 1, 2.25, 3]] * count, np.float32).reshape(-1, 4)
    return Detections(boxes, np.full(count, 0.5, np.float32), np.full(count, 2, np.int64))


def make_mask():
    mask = np.zeros((4, 8), np.uint8)
    mask[0] = 1
    return Segmentation(mask)


def line(task, result, outcome=Outcome.MET):
    work = Work(make_frame(7), result)
    text = format_result(make_record(task, 7, outcome), work, TASKS[task])
    assert "\n" not in text
    return json.loads(text)


def test_a_first_frame_in_another_variant_than_the_configured_one_is_in_the_summary():
    tasks = {name: replace(task, variant="svd-0.50@null") for name, task in TASKS.items()}
    with Recorder() as recorder:
        recorder.introduce(tasks)
        recorder.observe(make_record("detector"), Work(make_frame()))
    use = recorder.summary.tasks["detector"].use
    assert use.switches == {("svd-0.50@null", "full@null"): 1}
    assert describe_use(use) == (
        "began in full@null, configured svd-0.50@null, 1 switch (svd-0.50@null -> full@null 1), "
        "time 100 % full@null"
    )
    idle = recorder.summary.tasks["segmenter"].use
    assert describe_use(idle) == "configured svd-0.50@null, no frame ran"


def test_line_of_boxes():
    found = line("detector", make_boxes(1))
    assert len(base64.b64decode(found.pop("thumbnail"))) == 16 * 16
    assert found == {
        "frame": 7,
        "stamp_ns": 1007,
        "width": make_frame(7).width,
        "height": make_frame(7).height,
        "task": "detector",
        "outcome": "met",
        "boxes": [{"class_id": "2", "label": "car", "score": 0.5, "xyxy": [0.0, 1.0, 2.25, 3.0]}],
    }


def test_line_of_what_a_network_gives_beside_boxes():
    found = make_boxes(2)
    found.rotated = np.array([[1, 2, 3.125, 4, 0.5], [0, 0, 2, 1, -0.123456]], np.float32)
    found.keypoints = np.array([[[1, 2, 0.5]], [[3.333, 4, 1]]], np.float32)
    found.instance_mask = np.array([[0, 1, 1, 2]], np.uint16)
    found.track_ids = np.array([7, -1])
    first, second = line("detector", found)["boxes"]
    beside = {"rotated", "keypoints", "mask_area", "track_id"}
    assert {key: first[key] for key in beside} == {
        "rotated": [1.0, 2.0, 3.12, 4.0, 0.5],
        "keypoints": [[1.0, 2.0, 0.5]],
        "mask_area": 2,
        "track_id": 7,
    }
    assert (second["rotated"][4], second["keypoints"][0][0]) == (-0.12346, 3.33)
    assert (second["mask_area"], second["track_id"]) == (1, None)


def test_line_of_several_masks_has_their_names():
    """Two classes that nobody has named: background, and the mask's own name."""
    mask = make_mask().mask
    other = Segmentation(mask * 0, name="ll", classes=2)
    result = Segmentation(mask, name="da", classes=2, others=(other,))
    info = replace(TASKS["segmenter"], labels=("class_0", "class_1"))
    text = format_result(
        make_record("segmenter", 7, Outcome.MET), Work(make_frame(7), result), info
    )
    assert json.loads(text)["class_shares"] == {
        "da": {"background": 0.75, "da": 0.25},
        "ll": {"background": 1.0},
    }


def test_line_of_a_photo_has_its_name_and_on_request_its_mask():
    frame = replace(make_frame(7), file="a b.jpg")
    work = Work(frame, make_mask())
    record = make_record("segmenter", 7)
    found = json.loads(format_result(record, work, TASKS["segmenter"], masks=True))
    assert found["file"] == "a b.jpg"
    data = np.frombuffer(base64.b64decode(found["mask_png"]), np.uint8)
    np.testing.assert_array_equal(cv2.imdecode(data, cv2.IMREAD_UNCHANGED), make_mask().mask)
    assert "mask_png" not in json.loads(format_result(record, work, TASKS["segmenter"]))


WIDE = np.zeros((4, 16), np.uint8)
WIDE[:, ::2] = 1
NAMELESS = make_boxes(1)
NAMELESS.class_ids[:] = 9


@pytest.mark.parametrize(
    ("task", "result", "key", "found"),
    [
        ("segmenter", make_mask(), "class_shares", {"road": 0.75, "sky": 0.25}),
        ("segmenter", Segmentation(WIDE[:, ::2]), "class_shares", {"sky": 1.0}),
        (
            "detector",
            Classification(np.array([2]), np.array([0.25], np.float32)),
            "classes",
            [{"class_id": "2", "label": "car", "score": 0.25}],
        ),
        ("detector", None, "boxes", []),
        ("segmenter", None, "class_shares", {}),
    ],
)
def test_line_of_any_result(task, result, key, found):
    assert line(task, result)[key] == found


def test_class_without_a_name_is_named_by_its_number():
    assert line("detector", NAMELESS)["boxes"][0]["label"] == "class_9"


def record_jobs(recorder, count, boxes=3):
    for sequence in range(count):
        recorder.observe(
            make_record("detector", sequence), Work(make_frame(sequence), make_boxes(boxes))
        )


def test_files_hold_every_job_in_order_of_completion(tmp_path):
    results, trace = tmp_path / "new" / "r.jsonl", tmp_path / "out" / "trace"
    with Recorder(results, trace) as recorder:
        recorder.introduce(TASKS)
        for sequence in (0, 2, 1):
            work = Work(make_frame(sequence), make_boxes(sequence))
            recorder.observe(make_record("detector", sequence), work)
    lines = [json.loads(text) for text in results.read_text().splitlines()]
    assert [(found["frame"], len(found["boxes"])) for found in lines] == [(0, 0), (2, 2), (1, 1)]
    assert [job.record.sequence for job in open_trace(trace).jobs()] == [0, 2, 1]
    assert recorder.lost == 0
    assert recorder.summary.tasks["detector"].released == 3
    assert recorder.summary.tasks["segmenter"].released == 0


def record_frames(frames):
    with Recorder(keep_sight=True) as recorder:
        recorder.introduce(TASKS)
        for frame, results in frames:
            for task, result in results.items():
                recorder.observe(make_record(task, frame.sequence), Work(frame, result))
    return recorder


def test_picture_is_of_the_last_frame_that_all_tasks_saw():
    first, second, third = (make_frame(i) for i in range(3))
    both = {"detector": make_boxes(1), "segmenter": make_mask()}
    recorder = record_frames([(first, both), (second, both), (third, {"segmenter": make_mask()})])
    assert recorder.best.frame is second
    assert set(recorder.best.results) == {"detector", "segmenter"}


def test_picture_prefers_a_frame_with_boxes():
    first, second = make_frame(0), make_frame(1)
    with_box = {"detector": make_boxes(1)}
    empty = {"detector": make_boxes(0), "segmenter": make_mask()}
    recorder = record_frames([(first, with_box), (second, empty)])
    assert recorder.best.frame is first


def test_no_picture_of_frames_that_were_not_met():
    with Recorder(keep_sight=True) as recorder:
        recorder.introduce(TASKS)
        work = Work(make_frame(), make_boxes(1))
        recorder.observe(make_record("detector", 0, Outcome.LATE), work)
    assert recorder.best is None
    assert recorder.summary.tasks["detector"].released == 1


def test_a_hung_disk_does_not_hold_the_run_up(tmp_path, monkeypatch):
    """EDGES 20: a pipe that nobody reads takes 64 KB, then no line any more."""
    monkeypatch.setattr(recorder_module, "QUEUE_LIMIT", 16)
    monkeypatch.setattr(recorder_module, "JOIN_S", 0.2)
    os.mkfifo(tmp_path / "results")
    reader = os.open(tmp_path / "results", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with Recorder(tmp_path / "results") as recorder:
            recorder.introduce(TASKS)
            record_jobs(recorder, 5000)
        assert recorder._thread.is_alive()
        assert recorder._queue.qsize() <= 16  # of the frames, no more are held
        assert "has not answered" in str(recorder.error)
        assert recorder.summary.tasks["detector"].released < 5000
    finally:
        os.close(reader)
    # The pipe breaks: its thread takes what waits, and would end with the next mark.
    recorder._queue.put(None, timeout=60.0)
    recorder._thread.join(60.0)
    assert not recorder._thread.is_alive()


def test_a_nearly_full_disk_gets_no_more_lines(tmp_path):
    """EDGES 20: result lines leave something of the disk free."""
    with mount_small_disk(tmp_path / "disk", 2 * 2**20) as disk:
        (disk / "filler").write_bytes(bytes(free_bytes(disk) - 50_000))
        with Recorder(disk / "results.jsonl") as recorder:
            recorder.introduce(TASKS)
            recorder.observe(make_record("detector"), Work(make_frame(), make_boxes(1)))
        assert "would be free on the disk" in str(recorder.error)
        assert recorder.summary.tasks["detector"].released == 1
        assert (disk / "results.jsonl").stat().st_size == 0


@pytest.mark.parametrize("jobs", [1, 2000])
def test_full_disk_is_said_and_does_not_stop_the_run(jobs):
    with Recorder(Path("/dev/full")) as recorder:
        recorder.introduce(TASKS)
        record_jobs(recorder, jobs)
    assert recorder.summary.tasks["detector"].released == jobs
    assert recorder.error is not None


def test_a_job_that_cannot_be_recorded_is_said_and_does_not_stop_the_run():
    """EDGES 0: one exception in the recorder's thread stopped the run at a full queue."""
    with Recorder(Path("/dev/null")) as recorder:
        recorder.introduce(TASKS)
        recorder.observe(make_record("nobody", 0), Work(make_frame(0), make_boxes(1)))
        record_jobs(recorder, 2 * QUEUE_LIMIT)
    assert recorder.summary.tasks["detector"].released == 2 * QUEUE_LIMIT
    assert isinstance(recorder.error, KeyError)
    assert [one.kind for one in FAULTS.snapshot()] == ["recorder: KeyError"]
