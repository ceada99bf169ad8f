# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Folders of photos of any size, as a camera and in place of a bag."""

from __future__ import annotations

import logging

import cv2
import numpy as np
import pytest
from photos import turn_jpeg, write_photos

from jetson_dnn_rt.cameras.bags.image_bag import BadMessage, BagImage, open_image_bag
from jetson_dnn_rt.cameras.camera import open_camera
from jetson_dnn_rt.cameras.files import NAMED, read_image, write_image
from jetson_dnn_rt.cameras.source import SourceOptions, open_source
from jetson_dnn_rt.errors import SourceError


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "photos"


def read_all(source):
    """Every frame up to the end."""
    frames = []
    while (image := source.read(np.zeros((source.height, source.width, 3), np.uint8))) is not None:
        frames.append(image)
    return frames


def test_a_folder_gives_each_photo_in_its_size(folder):
    sizes = write_photos(folder, 30)
    source = open_source(f"images:{folder}")
    assert (source.height, source.width) == sizes[0]
    images = read_all(source)
    assert [image.shape for image in images] == [(*size, 3) for size in sizes]
    for file, image in zip(sorted(folder.iterdir()), images, strict=True):
        np.testing.assert_array_equal(image, cv2.imread(str(file)))
    assert source.unreadable == 0


def test_a_camera_delivers_every_size(folder):
    sizes = write_photos(folder, 100)
    frames = list(open_camera(f"images:{folder}", rate_hz=1000.0))
    assert [(frame.height, frame.width) for frame in frames] == sizes
    assert [frame.sequence for frame in frames] == list(range(100))
    for file, frame in zip(sorted(folder.iterdir()), frames, strict=True):
        np.testing.assert_array_equal(frame.image, read_image(file))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_are_turned_upright(tmp_path, orientation):
    """A bright corner, upper left in the upright picture, by the definitions of EXIF 2.3."""
    stored = np.zeros((32, 64, 3), np.uint8)
    lower, right = orientation in (3, 4, 6, 7), orientation in (2, 3, 7, 8)
    stored[slice(16, 32) if lower else slice(0, 16), slice(32, 64) if right else slice(0, 32)] = (
        255
    )
    jpeg = cv2.imencode(".jpg", stored)[1].tobytes()
    (tmp_path / "a.jpg").write_bytes(turn_jpeg(jpeg, orientation))
    image = read_image(tmp_path / "a.jpg")
    assert image.shape == ((32, 64, 3) if orientation < 5 else (64, 32, 3))
    rows, columns = image.shape[0] // 2, image.shape[1] // 2
    quarters = [image[:rows, :columns], image[:rows, columns:], image[rows:]]
    assert [round(float(quarter.mean())) for quarter in quarters] == [255, 0, 0]


@pytest.mark.parametrize(
    ("picture", "bgr"),
    [
        (np.full((5, 7), 90, np.uint8), (90, 90, 90)),
        (np.full((5, 7, 4), (10, 20, 30, 0), np.uint8), (10, 20, 30)),
        (np.full((5, 7, 3), (0x1000, 0x2000, 0xFF00), np.uint16), (0x10, 0x20, 0xFF)),
    ],
    ids=["grey", "transparent", "16 bits"],
)
def test_any_png_becomes_three_colours(tmp_path, picture, bgr):
    cv2.imwrite(str(tmp_path / "a.png"), picture)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), np.full((5, 7, 3), bgr))


def spoil(folder, *names):
    """Write files that are no pictures, whatever their names say."""
    for index, name in enumerate(names):
        (folder / name).write_bytes([b"", b"no picture at all", b"\xff\xd8\xff\xe0"][index % 3])


def test_a_file_that_is_no_picture_is_passed_over_and_counted(folder, caplog):
    sizes = write_photos(folder, 3)
    spoil(folder, "000a.jpg", "001a.png", "zzz.jpeg")
    source = open_source(f"images:{folder}")
    assert [image.shape[:2] for image in read_all(source)] == sizes
    assert source.unreadable == 3
    lines = [record.message for record in caplog.records]
    assert len(lines) == 3
    assert "000a.jpg cannot be decoded" in lines[0]


def test_the_first_file_may_be_no_picture(folder):
    sizes = write_photos(folder, 2)
    spoil(folder, "000.a.jpg", "000.b.jpg")
    source = open_source(f"images:{folder}")
    assert (source.height, source.width) == sizes[0]
    assert len(read_all(source)) == 2
    assert source.unreadable == 2


def test_many_files_that_are_no_pictures_do_not_fill_the_log(folder, caplog):
    write_photos(folder, 1)
    spoil(folder, *(f"bad{number}.png" for number in range(9)))
    source = open_source(f"images:{folder}", SourceOptions(loop=True))
    for _ in range(3):
        assert source.read(np.zeros((source.height, source.width, 3), np.uint8)) is not None
    assert source.unreadable == 18
    assert len(caplog.records) == NAMED
    assert "further ones are only counted" in caplog.records[-1].message


@pytest.mark.parametrize("loop", [False, True])
def test_photos_that_vanish_end_a_folder(folder, loop):
    write_photos(folder, 3)
    source = open_source(f"images:{folder}", SourceOptions(loop=loop))
    for file in folder.iterdir():
        file.write_bytes(b"")
    with pytest.raises(SourceError, match=r"no image of .* can be decoded any more"):
        read_all(source)


def test_an_mjpeg_stream_of_several_sizes_goes_on(tmp_path):
    """FFmpeg scales what comes later to the first size."""
    jpegs = []
    for height, width in ((48, 64), (96, 128), (30, 30)):
        picture = np.full((height, width, 3), height, np.uint8)
        jpegs += [cv2.imencode(".jpg", picture)[1].tobytes()] * 3
    (tmp_path / "v.mjpeg").write_bytes(b"".join(jpegs))
    images = read_all(open_source(f"video:{tmp_path / 'v.mjpeg'}"))
    assert len(images) == 9
    for height, image in zip([48] * 3 + [96] * 3 + [30] * 3, images, strict=True):
        assert abs(float(image.mean()) - height) < 3


def test_a_folder_of_photos_stands_for_a_bag(folder):
    sizes = write_photos(folder, 40)
    spoil(folder, "005a.jpg")
    with open_image_bag(folder) as bag:
        assert (bag.count, bag.missing, bag.topic, bag.notes) == (41, 0, "/image_raw", [])
        assert set(np.diff(bag.log_times_ns)) == {100_000_000}
        messages = list(bag.read())
    bad = [message for message in messages if isinstance(message, BadMessage)]
    assert [message.index for message in bad] == [6]
    assert "005a.jpg cannot be decoded" in bad[0].reason
    images = [message for message in messages if isinstance(message, BagImage)]
    assert [image.frame.image.shape[:2] for image in images] == sizes
    assert [image.frame.stamp_ns for image in images] == [image.log_time_ns for image in images]
    files = [file for file in sorted(folder.iterdir()) if file.name != "005a.jpg"]
    for file, image in zip(files, images, strict=True):
        np.testing.assert_array_equal(image.frame.image, read_image(file))


def test_a_bag_with_pictures_beside_it_is_a_bag(folder):
    write_photos(folder, 2)
    (folder / "drive.mcap").write_bytes(b"")
    with pytest.raises(SourceError, match=r"drive\.mcap: it is empty"):
        open_image_bag(folder)


@pytest.fixture(autouse=True)
def log_everything(caplog):
    caplog.set_level(logging.WARNING)


def test_a_picture_that_cannot_be_written_is_an_error(tmp_path):
    """EDGES, campaign 5: OpenCV leaves an empty file on a full disk and reports success."""
    picture = np.full((4, 5, 3), 7, np.uint8)
    write_image(tmp_path / "sound.png", picture)
    np.testing.assert_array_equal(read_image(tmp_path / "sound.png"), picture)
    (tmp_path / "full.png").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_image(tmp_path / "full.png", picture)
