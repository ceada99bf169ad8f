# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Sources by their names; the error for a wrong one says what would help."""

from __future__ import annotations

import inspect
import itertools
import os
import pkgutil
from collections import deque

import cv2
import numpy as np
import pytest
from hostile_images import TOO_LARGE, make_jpeg, resize_jpeg
from matroska import write_matroska

from jetson_dnn_rt.cameras import files
from jetson_dnn_rt.cameras.live import devices
from jetson_dnn_rt.cameras.live.devices import LiveSource
from jetson_dnn_rt.cameras.source import SourceOptions, open_source
from jetson_dnn_rt.config.camera_sources import CAMERA_SOURCES
from jetson_dnn_rt.demo.scenes import SceneGenerator
from jetson_dnn_rt.errors import SourceError

LOOP = SourceOptions(loop=True)


def read(source):
    out = np.zeros((source.height, source.width, 3), np.uint8)
    image = source.read(out)
    assert image is not None
    return image


def write_images(folder, count=3, size=(48, 64)):
    for index in range(count):
        cv2.imwrite(str(folder / f"{index}.png"), np.full((*size, 3), 50 * index, np.uint8))


UNEVEN_MS = np.cumsum(np.random.default_rng(0).integers(17, 90, 50)).tolist()


@pytest.mark.parametrize("times_ms", [UNEVEN_MS, [0, 700], [0]])
def test_a_video_without_a_rate_has_that_of_its_frames(tmp_path, caplog, times_ms):
    """FFmpeg says 1000 Hz, as of WebM from a browser, and no or a wrong number of frames."""
    write_matroska(tmp_path / "a.mkv", times_ms)
    source = open_source(f"video:{tmp_path / 'a.mkv'}", LOOP)
    span_s = (times_ms[-1] - times_ms[0]) / 1e3
    rate_hz = (len(times_ms) - 1) / span_s if span_s else 10.0
    assert source.rate_hz == pytest.approx(rate_hz)
    assert f"states no frame rate (1000 Hz): {rate_hz:.4g} Hz by its frames" in caplog.text
    assert source.count_frames() == len(times_ms)
    for place in (*range(len(times_ms)), 0):  # measuring has read nothing of it
        assert read(source)[0, 0].tolist() == pytest.approx([5 * place] * 3, abs=2)


@pytest.mark.parametrize("scheme", CAMERA_SOURCES)
def test_every_source_has_something_that_opens_it(scheme):
    form, place = CAMERA_SOURCES[scheme]
    assert form.startswith(scheme)
    assert (
        len(inspect.signature(pkgutil.resolve_name(f"jetson_dnn_rt.cameras.{place}")).parameters)
        == 2
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "webcam",
            r"'webcam': give synthetic\[:WxH\], video:PATH, images:DIR, device:/dev/videoN",
        ),
        ("video", "names nothing after 'video:'"),
        ("video:/nowhere.mp4", "video /nowhere.mp4 is not there"),
        ("images:/nowhere", "images: /nowhere does not exist; give a folder"),
        ("device:/dev/video999", "camera /dev/video999 is not there"),
        ("synthetic:640", "the size is written as 640x480"),
        ("synthetic:16x16", "size must be at least 64"),
        ("synthetic:99999x99999", "too large"),
    ],
)
def test_a_source_that_cannot_be_opened_says_why(name, message):
    with pytest.raises(SourceError, match=message):
        open_source(name)


def test_gstreamer_without_support_names_the_fix():
    if cv2.videoio_registry.hasBackend(cv2.CAP_GSTREAMER):
        pytest.skip("this OpenCV has GStreamer")
    with pytest.raises(SourceError, match="built without GStreamer: use the system's"):
        open_source("gstreamer:videotestsrc ! appsink")


class FakeCapture:
    """Stands for `cv2.VideoCapture` of a device whose size is changed by somebody else."""

    def __init__(self, *sizes):
        self.sizes = list(sizes)
        self.released = False

    def isOpened(self):  # noqa: N802 - a name of OpenCV
        return True

    def grab(self):
        return bool(self.sizes)

    def retrieve(self, out=None):
        size = self.sizes.pop(0)
        if out is None or out.shape != (*size, 3):
            out = np.empty((*size, 3), np.uint8)
        out[:] = len(self.sizes)
        return True, out

    def get(self, what):
        return 0.0

    def release(self):
        self.released = True


def test_a_device_may_change_its_size():
    sizes = [(48, 64), (48, 64), (24, 32), (24, 32), (48, 64)]
    source = LiveSource(FakeCapture(sizes[0], *sizes), "camera", "none")
    for index, size in enumerate(sizes):
        out = np.empty((source.height, source.width, 3), np.uint8)
        image = source.read(out)
        np.testing.assert_array_equal(image, np.full((*size, 3), 4 - index, np.uint8))
        # It is asked for once in a buffer that does not fit, then in one that does.
        assert (image is out) == (index in (0, 1, 3))
        assert (source.height, source.width) == size
    with pytest.raises(SourceError, match="camera stopped delivering frames"):
        source.read(image)


class StampedCapture(FakeCapture):
    """Stands for a device whose driver stamps its frames with these times, in milliseconds."""

    def __init__(self, *stamps_ms):
        super().__init__(*[(48, 64)] * (len(stamps_ms) + 1))
        self.stamps_ms = list(stamps_ms)
        self.grabbed = -1

    def grab(self):
        self.grabbed += 1
        return True

    def get(self, what):
        return self.stamps_ms[max(0, self.grabbed - 1)] if what == cv2.CAP_PROP_POS_MSEC else 0.0


def read_ages(monkeypatch, times_ms, stamps_ms, **options):
    """Ages in ms, and doubts, of frames that are read at these steady times."""
    clock = iter([times_ms[0], *times_ms])
    monkeypatch.setattr(devices.time, "monotonic_ns", lambda: next(clock) * 1_000_000)
    source = LiveSource(StampedCapture(*stamps_ms), "camera", "none", **options)
    monkeypatch.setattr(source._stamps, "_now_ns", lambda: now_ms * 1_000_000)
    out, found = np.empty((48, 64, 3), np.uint8), []
    for now_ms in times_ms:
        source.read(out)
        found.append(((now_ms * 1_000_000 - source.capture_ns) // 1_000_000, source.doubt))
    return found


def test_a_device_that_falls_behind_or_freezes_is_not_taken_for_fresh(monkeypatch):
    """Stamps that were more than a second back were replaced by the present: age 0."""
    times_ms = [10_000, 10_040, 15_000, 15_040]
    ages = read_ages(monkeypatch, times_ms, [9_990, 10_030, 10_070, 10_070])
    assert ages == [(10, ""), (10, ""), (4930, ""), (4970, "frozen")]


@pytest.mark.parametrize("options", [{}, {"own_clock": True}])
def test_a_device_with_a_clock_of_its_own_counts_from_its_best_frame(monkeypatch, options):
    """GStreamer counts from the pipeline's start."""
    times_ms = [10_000, 10_040, 10_100, 15_000]
    ages = read_ages(monkeypatch, times_ms, [20, 70, 110, 150], **options)
    assert ages == [(0, ""), (0, ""), (19, ""), (4879, "")]


def test_a_device_without_stamps_has_frames_of_unknown_age(monkeypatch):
    ages = read_ages(monkeypatch, [10_000, 10_040], [0, -1])
    assert ages == [(0, "stamp"), (0, "stamp")]


def test_bad_files_are_refused(tmp_path):
    """EDGES 1: a folder of the user's own is bounded too, and says by what."""
    (tmp_path / "v.mp4").write_bytes(b"\x00" * 4096)
    with pytest.raises(SourceError, match="cannot be read as a video"):
        open_source(f"video:{tmp_path / 'v.mp4'}")
    with pytest.raises(SourceError, match="holds no image"):
        open_source(f"images:{tmp_path}")
    (tmp_path / "a.jpg").write_bytes(resize_jpeg(make_jpeg(), *TOO_LARGE))
    with pytest.raises(SourceError, match=r"a\.jpg cannot be decoded, or has more than 67108864"):
        open_source(f"images:{tmp_path}")


LISTS = {
    "HLS": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\n{}\n#EXT-X-ENDLIST\n",
    "ffconcat": "ffconcat version 1.0\nfile '{}'\n",
    "DASH": "<?xml version='1.0'?><MPD><BaseURL>{}</BaseURL></MPD>",
    "with blanks": "\ufeff \n#EXTM3U\n#EXTINF:1.0,\n{}\n",
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("ending", [".m3u8", ".mp4"])
def test_lists_of_other_files_are_no_videos(tmp_path, kind, ending):
    """Campaign 8: FFmpeg would open whatever a playlist names."""
    write_matroska(tmp_path / "other.mkv", [0, 40, 80])
    path = tmp_path / f"v{ending}"
    path.write_text(LISTS[kind].format("other.mkv"))
    with pytest.raises(SourceError, match="is a list of other files"):
        open_source(f"video:{path}")


@pytest.mark.parametrize("kind", ["HLS", "ffconcat"])
def test_ffmpeg_opens_no_lists_whatever_their_first_bytes(tmp_path, monkeypatch, kind):
    """Campaign 8: where a list is not known by its beginning, FFmpeg has containers only."""
    monkeypatch.setattr(files, "_LISTS", (b"nothing",))
    monkeypatch.setenv("OPENCV_FFMPEG_CAPTURE_OPTIONS", "hwaccel;none")
    write_matroska(tmp_path / "other.mkv", [0, 40, 80])
    path = tmp_path / "v.m3u8"
    path.write_text(LISTS[kind].format("other.mkv"))
    with pytest.raises(SourceError, match="cannot be read as a video"):
        open_source(f"video:{path}")
    assert os.environ["OPENCV_FFMPEG_CAPTURE_OPTIONS"] == "hwaccel;none"


def test_a_video_is_one_file_whatever_its_name(tmp_path):
    """Campaign 8: OpenCV takes a name with a number for the first of many images."""
    write_images(tmp_path)
    with pytest.raises(SourceError, match="cannot be read as a video"):
        open_source(f"video:{tmp_path / '0.png'}")


def test_synthetic_frames_are_those_of_the_drive_until_its_renderer_ends():
    source = open_source("synthetic:160x128", SourceOptions(rate_hz=10.0, seed=5))
    drive = SceneGenerator(5, (128, 160))
    for index in range(3):
        np.testing.assert_array_equal(read(source), drive.render(index * 100_000_000).image)
    process = source._process  # type: ignore[attr-defined]
    process.kill()
    with pytest.raises(SourceError, match="renderer ended"):
        deque(map(read, itertools.repeat(source)), maxlen=0)  # what is left in the pipe
    source.close()
    source.close()
    assert process.poll() is not None


def test_video_has_its_frames_size_and_rate_and_starts_anew(shared_data):
    file = shared_data / "video" / "dashcam_white_right.mp4"
    source = open_source(f"video:{file}", LOOP)
    assert (source.width, source.height, source.rate_hz, source.live) == (960, 540, 25.0, False)
    first = read(source)
    np.testing.assert_array_equal(first, cv2.VideoCapture(str(file)).read()[1])
    out = np.zeros_like(first)
    for _ in range(220):
        assert source.read(out) is out
    np.testing.assert_array_equal(read(source), first)
    source.close()
    once = open_source(f"video:{file}")
    assert sum(1 for _ in iter(lambda: once.read(out) is None, True)) == 221
    once.close()


@pytest.mark.parametrize(
    ("options", "values"),
    [(SourceOptions(), [0, 50, 100]), (LOOP, [0, 50, 100, 0, 50])],
    ids=["once", "looped"],
)
def test_images_come_in_the_order_of_their_names(tmp_path, options, values):
    write_images(tmp_path)
    source = open_source(f"images:{tmp_path}", options)
    assert [int(read(source)[0, 0, 0]) for _ in values] == values
    assert (source.read(np.zeros((48, 64, 3), np.uint8)) is not None) == options.loop


def test_buffers_of_another_size_are_refused(tmp_path):
    write_images(tmp_path, 1)
    source = open_source(f"images:{tmp_path}")
    message = r"out must be a C-contiguous array of shape \(48, 64, 3\)"
    with pytest.raises(ValueError, match=message):
        source.read(np.zeros((48, 65, 3), np.uint8))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("0", "device:/dev/video0"),
        ("/dev/video1", "device:/dev/video1"),
        ("drive.mp4", "video:drive.mp4"),
        ("file:///home/me/drive.mp4", "video:/home/me/drive.mp4"),
        (
            "rtsp://10.0.0.2/stream1",
            "'gstreamer:uridecodebin uri=rtsp://10.0.0.2/stream1 ! videoconvert ! appsink "
            "drop=true max-buffers=1'",
        ),
    ],
)
def test_a_source_without_its_scheme_is_named_as_it_is_written(name, meant):
    with pytest.raises(SourceError) as error:
        open_source(name)
    assert str(error.value).endswith(f"; did you mean {meant}?")


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 3660092\n"


@pytest.mark.parametrize(("name", "form"), [("a.mp4", "video:{}"), ("a.png", "images:{.parent}")])
def test_a_pointer_of_git_lfs_is_named(tmp_path, name, form):
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(SourceError, match=r"is a pointer of Git LFS, .*: git lfs pull"):
        open_source(form.format(tmp_path / name))
