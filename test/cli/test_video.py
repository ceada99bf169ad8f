# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The video of a run."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from ended_jobs import TASKS, make_record
from small_disk import fill, mount_small_disk

from jetson_dnn_rt.cli import video as video_module
from jetson_dnn_rt.cli.video import PENDING, SLOTS, RunVideo, check_video, count_frames
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Detections, Segmentation
from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.tasks import Outcome, Work

GREY = np.full((96, 128, 3), 90, np.uint8)


def make_frame(sequence, image=GREY):
    return Frame(image, "bgr8", 1_000 + sequence, sequence, "camera")


def make_box():
    box = np.array([[32, 24, 96, 72]], np.float32)
    return Detections(box, np.float32([0.9]), np.array([2]))


def read_video(path):
    capture = cv2.VideoCapture(str(path))
    frames = []
    while (read := capture.read())[0]:
        frames.append(read[1])
    return frames


def open_video(path, tasks=TASKS):
    video = RunVideo(path)
    video.introduce(tasks)
    return video


def test_results_are_drawn_into_their_own_frame_alone(tmp_path):
    video = open_video(tmp_path / "v.avi")
    mask = Segmentation(np.ones((96, 128), np.uint8))
    for i in range(3):
        frame = make_frame(i)
        found = make_box() if i == 0 else None
        outcome = Outcome.MET if i == 0 else Outcome.SKIPPED
        video.add(make_record("detector", i, outcome), Work(frame, found))
        # Only the third frame has a mask; it is the tasks' frame, not the camera's, that counts.
        painted = mask if i == 2 else None
        video.add(make_record("segmenter", i), Work(frame, painted))
    video.close()
    (count,) = video.counts
    assert (count.frames, count.left_out) == (3, 0)
    boxed, bare, masked = (frame.astype(int) for frame in read_video(tmp_path / "v.avi"))
    assert boxed.shape == (240 + 40, 320, 3)  # enlarged, with a line for each task

    def differs(picture, x, y):
        return np.abs(picture[y, x] - 90).max() > 40

    edge, inside, outside = (120, 60), (200, 120), (20, 120)
    assert [differs(boxed, *place) for place in (edge, inside, outside)] == [True, False, False]
    assert not any(differs(bare, *place) for place in (edge, inside, outside))
    assert np.abs(masked[20:200] - bare[20:200]).mean() > 20
    # The lines of the tasks: one met, one not; both of the last frame differ from the first's.
    assert np.abs(boxed[240:260] - bare[240:260]).max() > 60


def test_frames_that_the_encoder_has_no_time_for_are_counted(tmp_path, monkeypatch):
    blocked, go = threading.Event(), threading.Event()
    draw = video_module.draw_results

    def wait(*arguments):
        blocked.set()
        assert go.wait(30)
        return draw(*arguments)

    monkeypatch.setattr(video_module, "draw_results", wait)
    video = open_video(tmp_path / "v.avi", {"detector": TASKS["detector"]})
    video.add(make_record("detector", 0), Work(make_frame(0), make_box()))
    assert blocked.wait(30)
    for i in range(1, SLOTS + 6):
        video.add(make_record("detector", i), Work(make_frame(i), make_box()))
    go.set()
    video.close()
    (count,) = video.counts
    assert (count.frames, count.left_out) == (1 + SLOTS, 5)
    assert len(read_video(tmp_path / "v.avi")) == 1 + SLOTS


def test_a_frame_that_cannot_be_drawn_is_left_out_and_counted(tmp_path):
    video = open_video(tmp_path / "v.avi", {"detector": TASKS["detector"]})
    broken = make_box()
    broken.boxes = broken.boxes[:, :2]
    for i, found in enumerate((make_box(), broken, make_box())):
        video.add(make_record("detector", i), Work(make_frame(i), found))
    video.close()
    (count,) = video.counts
    assert (count.frames, count.left_out) == (2, 1)
    assert [fault.kind for fault in FAULTS.snapshot()] == ["thread video: IndexError"]


def test_a_task_that_gets_no_frames_holds_back_few(tmp_path):
    video = open_video(tmp_path / "v.avi")
    for i in range(PENDING + 2):
        video.add(make_record("detector", i), Work(make_frame(i), make_box()))
    video.close()
    assert len(read_video(tmp_path / "v.avi")) == video.counts[0].frames == PENDING + 2


def test_frames_of_any_size_and_what_is_no_picture(tmp_path):
    video = open_video(tmp_path / "v.avi", {"detector": TASKS["detector"]})
    images = [
        np.zeros((1, 1, 3), np.uint8),
        np.zeros((2, 40_000, 3), np.uint8),
        np.zeros((3000, 20, 3), np.uint8),
        np.zeros(0, np.uint8),
        GREY,
    ]
    for i, image in enumerate(images):
        video.add(make_record("detector", i, Outcome.FAILED), Work(make_frame(i, image)))
    video.close()
    assert len(read_video(tmp_path / "v.avi")) == len(images)


def test_each_camera_has_a_video(tmp_path):
    front, rear = (
        replace(TASKS["detector"], stream=stream) for stream in ("front", "/rear/image_raw")
    )
    video = open_video(tmp_path / "v.avi", {"a": front, "b": rear})
    for name in ("a", "b"):
        video.add(make_record(name), Work(make_frame(0), make_box()))
    video.close()
    files = {count.file.name for count in video.counts}
    assert files == {"v_front.avi", "v_rear_image_raw.avi"} == {f.name for f in tmp_path.iterdir()}


def test_a_disk_that_becomes_full_ends_the_video_with_the_reason(tmp_path, monkeypatch):
    video = open_video(tmp_path / "v.avi", {"detector": TASKS["detector"]})
    monkeypatch.setattr(video_module, "describe_full_disk", lambda place: "no room")
    video.add(make_record("detector", 0), Work(make_frame(0), make_box()))
    with pytest.raises(OSError, match=r"v\.avi: no room"):
        video.close()


def test_a_video_that_the_disk_did_not_take_is_said(tmp_path, monkeypatch):
    """EDGES, campaign 5: OpenCV writes half a video and reports nothing."""
    monkeypatch.setattr(video_module, "count_frames", lambda path: 1)
    video = open_video(tmp_path / "v.avi", {"detector": TASKS["detector"]})
    for number in range(3):
        video.add(make_record("detector", number), Work(make_frame(number), make_box()))
    with pytest.raises(OSError, match="incomplete"):
        video.close()
    assert count_frames(tmp_path / "v.avi") == 3


def test_a_full_disk_is_not_taken_for_a_missing_encoder(tmp_path):
    with mount_small_disk(tmp_path / "disk", 1 << 20) as disk:
        (disk / "old.mp4").write_bytes(b"of last week")
        fill(disk)
        for name in ("v.mp4", "old.mp4"):
            with pytest.raises(ConfigurationError, match=rf"cannot write .*{name}: No space left"):
                check_video(disk / name)
        assert sorted(file.name for file in disk.iterdir()) == ["filler", "old.mp4"]
        assert (disk / "old.mp4").read_bytes() == b"of last week"


def test_what_cannot_be_written_is_said_before_the_models_load(tmp_path, monkeypatch):
    with pytest.raises(ConfigurationError, match=r"v\.gif: .* ends in \.mp4 or \.avi"):
        RunVideo(tmp_path / "v.gif")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot write"):
        RunVideo(tmp_path / "file" / "v.mp4")
    closed = SimpleNamespace(isOpened=lambda: False, release=lambda: None)
    monkeypatch.setattr(video_module, "_open_writer", lambda *a: closed)
    with pytest.raises(ConfigurationError, match=r"mp4v.*FFmpeg.*--video none"):
        RunVideo(tmp_path / "v.mp4")
    assert not (tmp_path / "v.mp4").exists()
