# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Files whose names are not UTF-8, from an archive of another system, say: OpenCV died of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import cv2
import numpy as np
import pytest

from jetson_dnn_rt.cameras.bags.image_bag import open_image_bag
from jetson_dnn_rt.cameras.files import VideoSource, list_images, read_image
from jetson_dnn_rt.cli.main import BAD_ARGUMENTS, main
from jetson_dnn_rt.cli.video import _open_writer, check_video, count_frames
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.lab.bag import read_frames, write_bag
from jetson_dnn_rt.lab.evaluate.chunk import release
from jetson_dnn_rt.lab.streaming.truth import _read_mask
from jetson_dnn_rt.safety.utf8_paths import escape, is_utf8, utf8_name
from jetson_dnn_rt.traces.reader import open_trace

NAME = os.fsdecode("사진".encode("cp949"))
GREY = np.full((48, 64), 90, np.uint8)
PNG = cv2.imencode(".png", GREY)[1].tobytes()


@pytest.fixture
def folder(tmp_path):
    """A folder that is not UTF-8 either."""
    made = tmp_path / NAME
    made.mkdir()
    return made


@pytest.fixture
def photos(folder):
    """Two photos."""
    made = folder / "photos"
    made.mkdir()
    for name in (f"{NAME}.png", "z.png"):
        (made / name).write_bytes(PNG)
    return made


@pytest.fixture
def video(folder):
    """Five pictures."""
    path = folder / f"{NAME}.avi"
    writer = _open_writer(path.with_suffix(".mp4"), 10.0, (64, 48))
    for _ in range(5):
        writer.write(cv2.cvtColor(GREY, cv2.COLOR_GRAY2BGR))
    writer.release()
    return path.with_suffix(".mp4").rename(path)


def test_a_library_gets_a_name_in_utf8_under_which_a_file_can_be_made(folder):
    path = folder / f"{NAME}.txt"
    with utf8_name(path) as name:
        assert name.isascii()
        assert name.endswith(".txt")
        with open(name, "w") as file:
            file.write("x")
    assert path.read_text() == "x"
    assert not os.path.lexists(name)
    for plain in (folder.parent / "a", folder.parent / "é"):
        with utf8_name(plain) as name:
            assert name == os.fspath(plain)
    assert (is_utf8(NAME), is_utf8("é")) == (False, True)
    assert escape(f"é {NAME[0]}") == "é \\udcbb"


def test_photos_are_decoded_and_masks_are_read(photos):
    files = list_images(photos)
    assert [read_image(file)[0, 0].tolist() for file in files] == [[90, 90, 90]] * 2
    assert (_read_mask(files[0]) == GREY).all()
    files[0].write_bytes(b"no picture")
    with pytest.raises(SourceError, match="cannot be decoded"):
        read_image(files[0])
    files[0].unlink()
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        read_image(files[0])


def test_videos_are_read_and_written(video):
    source = VideoSource(video)
    assert source.read(np.empty((48, 64, 3), np.uint8)) is not None
    source.close()
    assert count_frames(video) == 5
    new = video.with_name(f"{NAME}.mp4")
    check_video(new)
    assert not new.exists()


@pytest.mark.parametrize("storage", ["sqlite", "mcap"])
def test_bags_are_written_and_read(folder, video, storage):
    path = folder / f"{NAME}{storage}"
    assert write_bag(path, read_frames(video), storage=storage) == 5
    with open_image_bag(path) as bag:
        assert (bag.count, bag.notes) == (5, [])
        assert bag.read_one(4).frame.image.shape == (48, 64, 3)  # type: ignore[union-attr]


def test_an_evaluation_of_them_is_whole(capsys, folder, photos):
    """Trace, results, table and JSON name them, and none of it ends in a UnicodeEncodeError."""
    (folder / "tasks.yaml").write_text(
        "/**/perception: {ros__parameters: {tasks: [detector]}}\n"
        '/**/detector: {ros__parameters: {model: "null:0.1", engine_cache: none}}\n'
    )
    out = folder / "out"
    given = ["--params", str(folder / "tasks.yaml"), "--output", str(out), "--json"]
    assert main(["evaluate", str(photos), *given]) == 0
    release()
    assert json.loads(capsys.readouterr().out)["bags"][0]["bag"] == str(photos)
    lines = (out / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["file"] for line in lines} == {f"{NAME}.png", "z.png"}
    assert {job.camera for job in open_trace(out).jobs()} == {f"{escape(NAME)}/photos#/image_raw"}
    for kind in ("csv", "xlsx"):
        assert main(["export", str(out), "--output", str(folder / f"{NAME}.{kind}")]) == 0
    assert main(["report", str(out), "--output", str(folder / "page")]) == 0


def test_a_strict_terminal_gets_such_names_escaped(folder, video):
    """In a locale with UTF-8, Python raises at the first of them that is printed."""
    command = [sys.executable, "-m", "jetson_dnn_rt.cli.main", "bag", video, "-o", folder / "bag"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert f"{escape(NAME)}/bag: 5 frames" in done.stdout.decode()


def test_run_says_that_ros_takes_none(capsys, video):
    assert main(["run", "--source", f"video:{video}"]) == BAD_ARGUMENTS
    assert "is not UTF-8, as ROS needs its arguments; fix: rename" in capsys.readouterr().err
