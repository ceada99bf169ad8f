"""Sources by their names; a wrong one says what would help."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from hostile_images import TOO_LARGE, make_jpeg, resize_jpeg

from jetson_dnn_rt.cameras.source import FrameSource
from jetson_dnn_rt.cameras.sources import open_source
from jetson_dnn_rt.demo.scenes import SceneGenerator
from jetson_dnn_rt.errors import SourceError


def read(source: FrameSource) -> np.ndarray:
    out = np.zeros((source.height, source.width, 3), np.uint8)
    assert source.read(out)
    return out


def write_images(folder: Path, count: int = 3, size: tuple[int, int] = (48, 64)) -> None:
    for index in range(count):
        cv2.imwrite(str(folder / f"{index}.png"), np.full((*size, 3), 50 * index, np.uint8))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("webcam", "unknown source 'webcam': give synthetic"),
        ("video", "names nothing after 'video:'"),
        ("video:/nowhere.mp4", "video /nowhere.mp4 is not there"),
        ("images:/nowhere", "images: /nowhere is not a folder"),
        ("device:/dev/video999", "camera /dev/video999 is not there"),
        ("synthetic:640", "the size is written as 640x480"),
        ("synthetic:16x16", "size must be at least 64"),
        ("synthetic:99999x99999", "too large"),
    ],
)
def test_a_source_that_cannot_be_opened_says_why(name: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        open_source(name)


def test_gstreamer_without_support_names_the_fix() -> None:
    if cv2.videoio_registry.hasBackend(cv2.CAP_GSTREAMER):
        pytest.skip("this OpenCV has GStreamer")
    with pytest.raises(SourceError, match="built without GStreamer: use the system's"):
        open_source("gstreamer:videotestsrc ! appsink")


def test_a_damaged_video_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "v.mp4"
    file.write_bytes(b"\x00" * 4096)
    with pytest.raises(SourceError, match="cannot be read as a video"):
        open_source(f"video:{file}")


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no picture")
    with pytest.raises(SourceError, match="holds no image"):
        open_source(f"images:{tmp_path}")


def test_synthetic_frames_are_those_of_the_drive() -> None:
    source = open_source("synthetic:160x128", rate_hz=10.0, seed=5)
    try:
        drive = SceneGenerator(5, (128, 160))
        for index in range(3):
            np.testing.assert_array_equal(read(source), drive.render(index * 100_000_000).image)
    finally:
        source.close()


def test_synthetic_renderer_ends_with_its_source() -> None:
    source = open_source("synthetic:160x128")
    process = source._process  # type: ignore[attr-defined]
    source.close()
    source.close()
    assert process.poll() is not None


def test_a_renderer_that_died_is_said() -> None:
    source = open_source("synthetic:640x480")
    source._process.kill()  # type: ignore[attr-defined]
    out = np.zeros((480, 640, 3), np.uint8)

    def read_what_is_left() -> None:
        for _ in range(10):
            source.read(out)

    with pytest.raises(SourceError, match="renderer ended"):
        read_what_is_left()
    source.close()


def test_video_has_its_frames_size_and_rate(shared_data: Path) -> None:
    file = shared_data / "video" / "dashcam_white_right.mp4"
    source = open_source(f"video:{file}")
    assert (source.width, source.height, source.rate_hz, source.live) == (960, 540, 25.0, False)
    capture = cv2.VideoCapture(str(file))
    np.testing.assert_array_equal(read(source), capture.read()[1])
    out = np.zeros((540, 960, 3), np.uint8)
    count = 1
    while source.read(out):
        count += 1
    assert count == 221
    source.close()


def test_video_starts_anew_when_looped(shared_data: Path) -> None:
    source = open_source(f"video:{shared_data}/video/dashcam_white_right.mp4", loop=True)
    first = read(source)
    out = np.zeros_like(first)
    for _ in range(220):
        assert source.read(out)
    np.testing.assert_array_equal(read(source), first)
    source.close()


def test_images_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_images(tmp_path)
    source = open_source(f"images:{tmp_path}")
    assert [int(read(source)[0, 0, 0]) for _ in range(3)] == [0, 50, 100]
    assert not source.read(np.zeros((48, 64, 3), np.uint8))


def test_images_start_anew_when_looped(tmp_path: Path) -> None:
    write_images(tmp_path, 2)
    source = open_source(f"images:{tmp_path}", loop=True)
    assert [int(read(source)[0, 0, 0]) for _ in range(5)] == [0, 50, 0, 50, 0]


def test_images_of_two_sizes_are_refused(tmp_path: Path) -> None:
    write_images(tmp_path, 1)
    cv2.imwrite(str(tmp_path / "9.png"), np.zeros((10, 10, 3), np.uint8))
    source = open_source(f"images:{tmp_path}")
    read(source)
    with pytest.raises(SourceError, match="a camera has one size"):
        read(source)


def test_an_image_of_too_many_pixels_is_refused(tmp_path: Path) -> None:
    """EDGES 1: a folder of the user's own is bounded too, and says by what."""
    file = resize_jpeg(make_jpeg(), *TOO_LARGE)
    (tmp_path / "a.jpg").write_bytes(file)
    with pytest.raises(SourceError, match=r"a\.jpg cannot be decoded, or has more than 67108864"):
        open_source(f"images:{tmp_path}")


def test_a_buffer_of_another_shape_is_refused(tmp_path: Path) -> None:
    write_images(tmp_path)
    source = open_source(f"images:{tmp_path}")
    with pytest.raises(
        ValueError, match=r"out must be a C-contiguous array of shape \(48, 64, 3\)"
    ):
        source.read(np.zeros((48, 65, 3), np.uint8))
