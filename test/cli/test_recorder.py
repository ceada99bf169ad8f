"""The recorder: result lines, trace, the frame for the picture."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from small_disk import free_bytes, mount_small_disk

from jetson_dnn_rt.cli import recorder as recorder_module
from jetson_dnn_rt.cli.recorder import QUEUE_LIMIT, Recorder, TaskLabels, format_result
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation
from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord, Work
from jetson_dnn_rt.traces.reader import open_trace

LABELS = {
    "detector": TaskLabels("detection", ("person", "bicycle", "car")),
    "segmenter": TaskLabels("segmentation", ("road", "sky")),
}


def make_frame(sequence: int = 0) -> Frame:
    image = np.zeros((4, 8, 3), np.uint8)
    return Frame(image, "bgr8", 1_000 + sequence, sequence, "camera")


def make_record(task: str, sequence: int = 0, outcome: Outcome = Outcome.MET) -> JobRecord:
    stages = (StageRecord("inference", "full@null", 10, 30),)
    return JobRecord(
        task, sequence, "full@null", outcome, "", 0, 5, 10, 35, 100, 0, 0, Admission.BUDGET, stages
    )


def make_boxes(count: int) -> Detections:
    boxes = np.array([[0, 1, 2.25, 3]] * count, np.float32).reshape(-1, 4)
    return Detections(boxes, np.full(count, 0.5, np.float32), np.full(count, 2, np.int64))


def make_mask() -> Segmentation:
    mask = np.zeros((4, 8), np.uint8)
    mask[0] = 1
    return Segmentation(mask)


def line(task: str, result: Result | None, outcome: Outcome = Outcome.MET) -> dict[str, object]:
    work = Work(make_frame(7), result)
    text = format_result(make_record(task, 7, outcome), work, LABELS[task])
    assert "\n" not in text
    parsed: dict[str, object] = json.loads(text)
    return parsed


def test_line_of_boxes() -> None:
    assert line("detector", make_boxes(1)) == {
        "frame": 7,
        "stamp_ns": 1007,
        "task": "detector",
        "outcome": "met",
        "boxes": [{"class_id": "2", "label": "car", "score": 0.5, "xyxy": [0.0, 1.0, 2.25, 3.0]}],
    }


def test_line_of_a_mask_has_the_shares_of_its_classes() -> None:
    assert line("segmenter", make_mask())["class_shares"] == {"road": 0.75, "sky": 0.25}


def test_line_of_a_strided_mask() -> None:
    wide = np.zeros((4, 16), np.uint8)
    wide[:, ::2] = 1
    assert line("segmenter", Segmentation(wide[:, ::2]))["class_shares"] == {"sky": 1.0}


def test_line_of_a_classification() -> None:
    result = Classification(np.array([2]), np.array([0.25], np.float32))
    assert line("detector", result)["classes"] == [
        {"class_id": "2", "label": "car", "score": 0.25}
    ]


@pytest.mark.parametrize(("task", "key"), [("detector", "boxes"), ("segmenter", "class_shares")])
def test_line_without_a_result_has_the_same_keys(task: str, key: str) -> None:
    found = line(task, None, Outcome.SKIPPED)
    assert found["outcome"] == "skipped"
    assert not found[key]


def test_class_without_a_name_is_named_by_its_number() -> None:
    result = make_boxes(1)
    result.class_ids[:] = 9
    boxes = line("detector", result)["boxes"]
    assert isinstance(boxes, list)
    assert boxes[0]["label"] == "class_9"


def test_files_hold_every_job_in_order_of_completion(tmp_path: Path) -> None:
    results, trace = tmp_path / "new" / "r.jsonl", tmp_path / "out" / "trace"
    with Recorder(results, trace) as recorder:
        recorder.introduce(LABELS)
        for sequence in (0, 2, 1):
            work = Work(make_frame(sequence), make_boxes(sequence))
            recorder.observe(make_record("detector", sequence), work)
    lines = [json.loads(text) for text in results.read_text().splitlines()]
    assert [(found["frame"], len(found["boxes"])) for found in lines] == [(0, 0), (2, 2), (1, 1)]
    assert [job.record.sequence for job in open_trace(trace).jobs()] == [0, 2, 1]
    assert recorder.lost == 0
    assert recorder.summary.tasks["detector"].released == 3
    assert recorder.summary.tasks["segmenter"].released == 0


def record_frames(frames: list[tuple[Frame, dict[str, Result]]]) -> Recorder:
    with Recorder(keep_sight=True) as recorder:
        recorder.introduce(LABELS)
        for frame, results in frames:
            for task, result in results.items():
                recorder.observe(make_record(task, frame.sequence), Work(frame, result))
    return recorder


def test_picture_is_of_the_last_frame_that_all_tasks_saw() -> None:
    first, second, third = (make_frame(i) for i in range(3))
    both: dict[str, Result] = {"detector": make_boxes(1), "segmenter": make_mask()}
    recorder = record_frames([(first, both), (second, both), (third, {"segmenter": make_mask()})])
    assert recorder.best is not None
    assert recorder.best.frame is second
    assert set(recorder.best.results) == {"detector", "segmenter"}


def test_picture_prefers_a_frame_with_boxes() -> None:
    first, second = make_frame(0), make_frame(1)
    with_box: dict[str, Result] = {"detector": make_boxes(1)}
    empty: dict[str, Result] = {"detector": make_boxes(0), "segmenter": make_mask()}
    recorder = record_frames([(first, with_box), (second, empty)])
    assert recorder.best is not None
    assert recorder.best.frame is first


def test_no_picture_of_frames_that_were_not_met() -> None:
    with Recorder(keep_sight=True) as recorder:
        recorder.introduce(LABELS)
        work = Work(make_frame(), make_boxes(1))
        recorder.observe(make_record("detector", 0, Outcome.LATE), work)
    assert recorder.best is None
    assert recorder.summary.tasks["detector"].released == 1


def test_a_hung_disk_does_not_hold_the_run_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EDGES 20: a pipe that nobody reads takes 64 KB, then no line any more."""
    monkeypatch.setattr(recorder_module, "QUEUE_LIMIT", 16)
    monkeypatch.setattr(recorder_module, "JOIN_S", 0.2)
    os.mkfifo(tmp_path / "results")
    reader = os.open(tmp_path / "results", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with Recorder(tmp_path / "results") as recorder:
            recorder.introduce(LABELS)
            for sequence in range(5000):
                work = Work(make_frame(sequence), make_boxes(3))
                recorder.observe(make_record("detector", sequence), work)
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


def test_a_nearly_full_disk_gets_no_more_lines(tmp_path: Path) -> None:
    """EDGES 20: result lines leave something of the disk free."""
    with mount_small_disk(tmp_path / "disk", 2 * 2**20) as disk:
        (disk / "filler").write_bytes(bytes(free_bytes(disk) - 50_000))
        with Recorder(disk / "results.jsonl") as recorder:
            recorder.introduce(LABELS)
            recorder.observe(make_record("detector"), Work(make_frame(), make_boxes(1)))
        assert "would be free on the disk" in str(recorder.error)
        assert recorder.summary.tasks["detector"].released == 1
        assert (disk / "results.jsonl").stat().st_size == 0


@pytest.mark.parametrize("jobs", [1, 2000])
def test_full_disk_is_said_and_does_not_stop_the_run(jobs: int) -> None:
    with Recorder(Path("/dev/full")) as recorder:
        recorder.introduce(LABELS)
        for sequence in range(jobs):
            work = Work(make_frame(sequence), make_boxes(3))
            recorder.observe(make_record("detector", sequence), work)
    assert recorder.summary.tasks["detector"].released == jobs
    assert recorder.error is not None


def test_a_job_that_cannot_be_recorded_is_said_and_does_not_stop_the_run() -> None:
    """EDGES 0: one exception in the recorder's thread stopped the run at a full queue."""
    with Recorder(Path("/dev/null")) as recorder:
        recorder.introduce(LABELS)
        recorder.observe(make_record("nobody", 0), Work(make_frame(0), make_boxes(1)))
        for sequence in range(2 * QUEUE_LIMIT):
            work = Work(make_frame(sequence), make_boxes(1))
            recorder.observe(make_record("detector", sequence), work)
    assert recorder.summary.tasks["detector"].released == 2 * QUEUE_LIMIT
    assert isinstance(recorder.error, KeyError)
    assert [one.kind for one in FAULTS.snapshot()] == ["recorder: KeyError"]
