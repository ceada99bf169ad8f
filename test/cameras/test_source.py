"""Sources by their names; the error for a wrong one says what would help."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import cv2
import numpy as np
import pytest
from hostile_images import TOO_LARGE, make_jpeg, resize_jpeg

from jetson_dnn_rt.cameras.source import SOURCES, FrameSource, SourceOptions, open_source
from jetson_dnn_rt.config.nodes import CameraConfig
from jetson_dnn_rt.demo.scenes import SceneGenerator
from jetson_dnn_rt.errors import SourceError

LOOP = SourceOptions(loop=True)


def read(source: FrameSource) -> np.ndarray:
    out = np.zeros((source.height, source.width, 3), np.uint8)
    assert source.read(out)
    return out


def write_images(folder: Path, count: int = 3, size: tuple[int, int] = (48, 64)) -> None:
    for index in range(count):
        cv2.imwrite(str(folder / f"{index}.png"), np.full((*size, 3), 50 * index, np.uint8))


@pytest.mark.parametrize("scheme", SOURCES)
def test_every_source_has_a_function_that_opens_it(scheme: str) -> None:
    form, place = SOURCES[scheme]
    module, _, function = place.partition(":")
    opener = getattr(importlib.import_module(f"jetson_dnn_rt.cameras.{module}"), function)
    assert len(inspect.signature(opener).parameters) == 2
    assert form.startswith(scheme)


def test_the_description_of_the_parameter_names_every_source() -> None:
    (item,) = CameraConfig.__dataclass_fields__["source"].metadata.values()
    assert all(form in item.description for form, _ in SOURCES.values())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "webcam",
            r"unknown source 'webcam': give synthetic\[:WxH\], video:PATH, images:DIR, "
            r"device:/dev/videoN or gstreamer:PIPELINE",
        ),
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
    source = open_source("synthetic:160x128", SourceOptions(rate_hz=10.0, seed=5))
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


def test_a_renderer_that_died_is_reported() -> None:
    source = open_source("synthetic:640x480")
    source._process.kill()  # type: ignore[attr-defined]

    def read_what_is_left() -> None:
        for _ in range(10):
            read(source)

    with pytest.raises(SourceError, match="renderer ended"):
        read_what_is_left()
    source.close()


def test_video_has_its_frames_size_and_rate_and_starts_anew(shared_data: Path) -> None:
    file = shared_data / "video" / "dashcam_white_right.mp4"
    source = open_source(f"video:{file}", LOOP)
    assert (source.width, source.height, source.rate_hz, source.live) == (960, 540, 25.0, False)
    first = read(source)
    np.testing.assert_array_equal(first, cv2.VideoCapture(str(file)).read()[1])
    out = np.zeros_like(first)
    for _ in range(220):
        assert source.read(out)
    np.testing.assert_array_equal(read(source), first)
    source.close()
    once = open_source(f"video:{file}")
    count = 0
    while once.read(out):
        count += 1
    assert count == 221
    once.close()


@pytest.mark.parametrize(
    ("options", "values"),
    [(SourceOptions(), [0, 50, 100]), (LOOP, [0, 50, 100, 0, 50])],
    ids=["once", "looped"],
)
def test_images_come_in_the_order_of_their_names(
    tmp_path: Path, options: SourceOptions, values: list[int]
) -> None:
    write_images(tmp_path)
    source = open_source(f"images:{tmp_path}", options)
    assert [int(read(source)[0, 0, 0]) for _ in values] == values
    assert source.read(np.zeros((48, 64, 3), np.uint8)) == options.loop


def test_images_of_two_sizes_are_refused(tmp_path: Path) -> None:
    write_images(tmp_path, 1)
    cv2.imwrite(str(tmp_path / "9.png"), np.zeros((10, 10, 3), np.uint8))
    source = open_source(f"images:{tmp_path}")
    read(source)
    with pytest.raises(SourceError, match="a camera has one size"):
        read(source)


def test_an_image_of_too_many_pixels_is_refused(tmp_path: Path) -> None:
    """EDGES 1: a folder of the user's own is bounded too, and says by what."""
    (tmp_path / "a.jpg").write_bytes(resize_jpeg(make_jpeg(), *TOO_LARGE))
    with pytest.raises(SourceError, match=r"a\.jpg cannot be decoded, or has more than 67108864"):
        open_source(f"images:{tmp_path}")


def test_a_buffer_of_another_shape_is_refused(tmp_path: Path) -> None:
    write_images(tmp_path)
    source = open_source(f"images:{tmp_path}")
    message = r"out must be a C-contiguous array of shape \(48, 64, 3\)"
    with pytest.raises(ValueError, match=message):
        source.read(np.zeros((48, 65, 3), np.uint8))
