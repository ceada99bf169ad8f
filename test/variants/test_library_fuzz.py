# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""One bad entry never stops what is done with the others (EDGES 13)."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzzing.mutations import nest
from hypothesis import given, settings
from hypothesis import strategies as st
from library_entries import FILES, make_key, read_content, reseal, store

from jetson_dnn_rt.cli import main
from jetson_dnn_rt.variants.library.entry import DamagedEntryError, Header, OtherSchemaError
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.measurement import Measurement, TimeDistribution

GOOD = make_key(model_hash="e" * 64)
MEASURED = make_key(kind="measurement")
RUNS = {"max_examples": 150, "deadline": None}


def make_measurement():
    total = TimeDistribution.of("total", [3_000_000, 4_000_000])
    return Measurement(
        variant="tucker-0.50@tensorrt-fp16", total=total, stages=(total,), memory_bytes=1,
        device_memory_bytes=1, parameters=5, parameter_bytes=10, macs=7, agreement=None,
        frames="synthetic", frame_size=(240, 320), threads=1, machine={"cpu": "x"},
        date="2026-01-01T00:00:00+00:00",
    ).to_json()  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A good entry and a measurement, the content of which is then spoilt again and again."""
    library = Library(tmp_path_factory.mktemp("fuzz") / "cache")
    library.store(GOOD, FILES, {}, model="builtin:segmenter")
    library.store(MEASURED, {}, make_measurement(), model="builtin:detector")
    return library


@pytest.fixture(scope="module")
def bad(library):
    return next(p for p in library.root.rglob(MEASURED.digest))


@pytest.fixture(scope="module")
def content(bad):
    return read_content(bad)


def use(library, capsys):
    """Do all that can be done with a library that has one bad entry and a good one."""
    opened = Library(library.root)
    opened.load(MEASURED)
    entry = opened.load(GOOD)
    assert dict(entry.files) == FILES
    assert GOOD in [listing.header.key for listing in opened.entries() if listing.header]
    opened.prune(find_stale=lambda key: "", unused_days=1e6, limit_bytes=1 << 40, dry_run=True)
    where = ["--engine-cache", str(library.root)]
    for command in (["list"], ["list", "--json"], ["prune", "--dry-run", "--json"]):
        assert main.main(["library", *command, *where]) == 0
    # What is said can be said on any terminal.
    out = capsys.readouterr().out
    out.encode()
    assert "\x1b" not in out
    assert "builtin:segmenter" in out


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=20,
)


@given(value=JSON | st.binary(), wrap=st.booleans())
@settings(**RUNS)
def test_any_text_is_a_header_or_a_damaged_one(value, wrap):
    """EDGES 13: JSON of any form, and what is no JSON."""
    if wrap:
        value = {"schema": 1, "sha256": "", "content": None if value == b"" else value}
    text = value if isinstance(value, bytes) else json.dumps(value, default=repr).encode()
    with pytest.raises((DamagedEntryError, OtherSchemaError)):
        Header.decode(text)


def put(make):
    def apply(path):
        (path / "entry.json").unlink()
        make(path / "entry.json")

    return apply


def change(**values):
    return lambda path: reseal(path, {**read_content(path), **values})


def put_text(text):
    return lambda path: (path / "entry.json").write_bytes(text)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "before the calendar": change(created="0001-01-01T00:00:00+23:59"),
    "after the calendar": change(created="9999-12-31T23:59:59-23:59"),
    "model of surrogates": change(model="\ud800"),
    "model of escapes": change(model="\x1b[2J"),
    "model is a list": change(model=[[]]),
    "deep size": change(files={"a": {"size": nest(900), "sha256": "0" * 64}}),
    "huge size": change(files={"a": {"size": 10**4200, "sha256": "0" * 64}}),
    "facts are text": change(facts="x"),
    "files are a list": change(files=[1]),
    "odd field": change(files={"a": {"size": 1, "sha256": "0" * 64, "\ud800": 1}}),
    "NaN": put_text(b'{"schema": 1, "sha256": "", "content": NaN}'),
    "infinite": put_text(b'{"schema": 1, "sha256": "", "content": 1e999}'),
    "digits": put_text(b'{"schema": 1' + b"0" * 100_000 + b"}"),
    "schema of digits": put_text(b'{"schema": 1' + b"0" * 4000 + b', "content": 1}'),
    "nesting": put_text(b'{"a":' * 100_000),
    "not UTF-8": put_text(b"\xff\xfe\x00"),
    "folder": put(os.mkdir),
    "loop": put(lambda path: path.symlink_to("entry.json")),
    "time of no calendar": lambda path: os.utime(path / "entry.json", (1 << 40, 1 << 40)),
    "file of no encoding": lambda path: os.mkdir(os.fsencode(path) + b"/\xff\n"),
}


@pytest.fixture
def spoilt(library, bad, content, tmp_path, request):
    """A library of three entries, one of which is damaged."""
    shutil.copytree(library.root, tmp_path / "cache")
    copy = Library(tmp_path / "cache")
    folder = copy.root / bad.relative_to(library.root)
    reseal(folder, content)
    store(copy, options="another")
    DAMAGES[request.param](folder)
    return copy


@pytest.mark.parametrize("spoilt", DAMAGES, indirect=True)
def test_a_bad_entry_is_named_once_and_passed_over(spoilt, capsys, caplog):
    """EDGES 13: it is reported, and the others are listed, loaded and pruned."""
    use(spoilt, capsys)
    caplog.clear()
    opened = Library(spoilt.root)
    loaded = [opened.load(MEASURED) for _ in range(3)]
    problems = {path.path.name: path.problem for path in opened.entries() if path.problem}
    if loaded[0] is not None:  # nothing is wrong with what it holds
        assert not problems or "is not a regular file" in problems[MEASURED.digest]
        return
    assert loaded == [None] * 3
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert MEASURED.digest in caplog.text
    assert list(problems) == [MEASURED.digest]
    assert problems[MEASURED.digest].isprintable()
