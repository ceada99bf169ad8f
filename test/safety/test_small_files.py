# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Small files that somebody else may have put there cost little, whatever they are."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hostile_yaml
import pytest
import yaml

from jetson_dnn_rt.cameras.bags.folder import MAX_FILES, METADATA, lay_out
from jetson_dnn_rt.cameras.files import list_images
from jetson_dnn_rt.config.parameter_file import read_parameter_file
from jetson_dnn_rt.coordinator.tables.files import load_tables
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError, SourceError
from jetson_dnn_rt.lab.simulate.scenario import load_scenario
from jetson_dnn_rt.models.graph.mixed_precision import read_colours
from jetson_dnn_rt.models.heads.labels import read_labels
from jetson_dnn_rt.models.sources.files import read_model_file
from jetson_dnn_rt.nodes.cameras import camera_info
from jetson_dnn_rt.safety import small_files
from jetson_dnn_rt.safety import yaml_files as safe_yaml
from jetson_dnn_rt.safety.records import read_record

READERS: dict[str, Callable[[Path], Any]] = {
    "labels": read_labels,
    "a calibration": camera_info._read,
    "a scenario": load_scenario,
    "colours of operators": lambda path: read_colours(str(path)),
    "a parameter file": read_parameter_file,
    "tables": load_tables,
    "a model": read_model_file,
}
YAML_READERS = sorted({*READERS} - {"tables", "a model"})
ONLY_TEXTS = ("a number to base 60", "the 31st of February")
"""Values that are plain texts where names are read: neither number nor date is made of them."""


def call(function):
    """What a function gives or raises, on a thread of its own that may hang."""
    ends: list[Any] = []

    def run():
        try:
            ends.append(function())
        except Exception as error:
            ends.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30.0)
    assert ends, "it hangs"
    return ends[0]


def lay_trap(path, kind):
    """Put at `path` what is no regular file, as such or behind a link."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link to a fifo":
        os.mkfifo(path.with_name("fifo"))
        path.symlink_to("fifo")
    else:
        path.symlink_to(kind)
    return path


@dataclass(frozen=True)
class Point:
    """What a scenario may have."""

    x: int


TRAPS = ["fifo", "link to a fifo", "/dev/zero", "/dev/null", "/"]


# -- what is no regular file -------------------------------------------------------------------


@pytest.mark.parametrize("kind", TRAPS)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_at_once(reader, kind, tmp_path):
    """A FIFO hung the thread for ever, /dev/zero took gigabytes."""
    path = lay_trap(tmp_path / "names.yaml", kind)
    error = call(lambda: READERS[reader](path))
    assert isinstance(error, JetsonDnnRtError)
    assert "not a regular file" in str(error)
    assert str(path) in str(error)


def test_a_link_to_a_regular_file_is_followed(tmp_path):
    (tmp_path / "names").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("names")
    assert small_files.read_text(tmp_path / "link", 5) == "12345"
    with pytest.raises(OSError, match=r"is larger than 4 bytes: .*link"):
        small_files.read_bytes(tmp_path / "link", 4)
    assert small_files.read_bytes(Path("/proc/self/status"), 100_000).startswith(b"Name:")
    with pytest.raises(OSError, match="is larger than 10 bytes"):
        small_files.read_bytes(Path("/proc/self/status"), 10)  # whose size is said to be 0


@pytest.mark.parametrize("reader", YAML_READERS)
def test_a_byte_order_mark_belongs_to_no_name(reader, tmp_path):
    """A class was called "\\ufeffcar", and ``classes: [car]`` found none of that name."""
    path = tmp_path / "names.yaml"
    path.write_bytes(b"\xef\xbb\xbfother: 1\n")
    (tmp_path / "plain.yaml").write_bytes(b"other: 1\n")
    found = call(lambda: READERS[reader](path))
    plain = call(lambda: READERS[reader](tmp_path / "plain.yaml"))
    assert str(found) == str(plain).replace("plain.yaml", "names.yaml")


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 3660092\n", "lfs pull"),
        (b"/annex/objects/SHA256E-s3660092--4d7a.onnx\n", "git annex get"),
    ],
)
def test_a_pointer_to_a_large_file_is_named(reader, content, words, tmp_path):
    """A checkout without its large files: "damaged or no ONNX file; export it again"."""
    path = tmp_path / "names.yaml"
    path.write_bytes(content)
    error = call(lambda: READERS[reader](path))
    assert isinstance(error, JetsonDnnRtError)
    assert "is a pointer of " in str(error)
    assert words in str(error)


# -- YAML --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reader", "name"),
    [
        *((reader, "a billion texts") for reader in YAML_READERS if reader != "labels"),
        *(("labels", name) for name in hostile_yaml.BOMBS if name not in ONLY_TEXTS),
        *((YAML_READERS[0], name) for name in ONLY_TEXTS),
    ],
)
def test_a_few_bytes_of_yaml_stay_small(reader, name, tmp_path):
    """460 bytes of aliases became gigabytes when a value was made to text."""
    path = tmp_path / "bomb.yaml"
    path.write_text(hostile_yaml.BOMBS[name])
    assert isinstance(call(lambda: READERS[reader](path)), JetsonDnnRtError)


def test_aliases_of_ordinary_files_are_read():
    text = "a: &a [1, 0x10, 1.5]\nb: *a\nc: {<<: {x: yes}, d: 2001-01-01}\n"
    assert safe_yaml.parse(text) == yaml.safe_load(text)


def test_parameter_files_may_have_aliases(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("a:\n  ros__parameters: &a {x: {y: 1e-3}}\nb:\n  ros__parameters: *a\n")
    assert read_parameter_file(path).of("/b") == {"x.y": 1e-3}
    path.write_text("a:\n  ros__parameters: {" + 300 * "x" + ": {y: 1}}\n")
    with pytest.raises(ConfigurationError, match="at most 255 characters"):
        read_parameter_file(path)


def test_values_in_errors_are_cut_off_before_they_are_made_to_text():
    value: list[Any] = ["lol"]
    for _ in range(40):
        value = [value] * 10  # 10^40 texts
    assert len(safe_yaml.describe(value)) <= 200
    with pytest.raises(ValueError, match="names with values") as caught:
        read_record(Point, value)
    assert len(str(caught.value)) < 400


# -- bags --------------------------------------------------------------------------------------


@pytest.fixture
def bag(tmp_path):
    folder = tmp_path / "bag"
    folder.mkdir()
    (folder / "x.mcap").write_bytes(b"")
    return folder


def write_metadata(bag, files="[x.mcap]", topic="/a", count="1"):
    (bag / METADATA).write_text(
        f"rosbag2_bagfile_information:\n  relative_file_paths: {files}\n"
        f"  topics_with_message_count:\n  - topic_metadata: {{name: {topic}}}\n"
        f"    message_count: {count}\n"
    )


@pytest.mark.parametrize("kind", TRAPS)
def test_metadata_that_are_no_regular_file_are_left_out(kind, bag):
    """A FIFO as metadata.yaml hung the camera for ever."""
    lay_trap(bag / METADATA, kind)
    layout = call(lambda: lay_out(bag))
    assert layout.files == [bag / "x.mcap"]
    assert "not a regular file" in layout.notes[0]


@pytest.mark.parametrize("kind", ["fifo", "/dev/null", "/dev/zero"])
def test_a_bag_that_is_neither_file_nor_folder_is_refused(kind, tmp_path):
    """It was a NotADirectoryError, which nobody expects of a source."""
    error = call(lambda: lay_out(lay_trap(tmp_path / "x.mcap", kind)))
    assert isinstance(error, SourceError)
    assert "neither a folder nor a regular file" in str(error)


def test_metadata_say_what_they_may(bag):
    write_metadata(bag, "[bag/x.mcap]", count="7")
    layout = lay_out(bag)
    assert (layout.files, layout.expected, layout.notes) == ([bag / "x.mcap"], {"/a": 7}, [])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"files": "[" + "x.mcap," * 10_001 + "]"}, "at most 10000 are accepted"),
        ({"files": "[x.mcap, ../x.mcap]"}, "'x.mcap' is named twice"),
        ({"files": "[[x.mcap]]"}, "the name of a file is not a text"),
        ({"topic": "[/a]"}, "the name of a topic is not a text"),
        ({"count": "-1"}, "no count of messages: -1"),
        ({"count": "0x" + "f" * 300}, "no count of messages"),
        ({"count": "1" * 5000}, "a number of more than 1000 characters"),
    ],
)
def test_metadata_that_cannot_be_are_left_out(values, words, bag):
    """One file was taken 200,000 times; a count may have thousands of digits."""
    assert MAX_FILES == 10_000
    write_metadata(bag, **values)
    layout = lay_out(bag)
    assert (layout.files, layout.expected) == ([bag / "x.mcap"], {})
    assert words in layout.notes[0]


@pytest.mark.parametrize("name", hostile_yaml.BOMBS)
def test_metadata_that_stand_for_gigabytes_are_left_out(name, bag):
    (bag / METADATA).write_text(hostile_yaml.BOMBS[name])
    layout = call(lambda: lay_out(bag))
    assert layout.files == [bag / "x.mcap"]
    assert "cannot be read and is left out" in layout.notes[0]


def test_a_topic_whose_name_stands_for_gigabytes_is_left_out(bag):
    """Its name was made to text: 570 bytes took gigabytes."""
    write_metadata(bag, topic="*a8")
    text = (bag / METADATA).read_text()
    (bag / METADATA).write_text(hostile_yaml.make_bomb(8) + text)
    layout = call(lambda: lay_out(bag))
    assert (layout.files, layout.expected) == ([bag / "x.mcap"], {})
    assert "aliases written out" in layout.notes[0]


def test_a_fifo_is_no_image(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(SourceError, match="holds no image"):
        list_images(tmp_path)
