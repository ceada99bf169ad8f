"""Entries that are damaged, stale or not the library's: reported once, rebuilt, never followed."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from library_entries import FILES, make_key, snapshot, store

from jetson_dnn_rt.variants.library import library as library_module
from jetson_dnn_rt.variants.library.entry import (
    encode_canonical,
)
from jetson_dnn_rt.variants.library.library import Library, Listing


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "cache")


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def change_header(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    header = json.loads((folder / "entry.json").read_text())
    change(header)
    (folder / "entry.json").write_text(json.dumps(header))


def reseal(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the content and give it a hash that fits: what a clumsy program would do."""

    def both(header: dict[str, Any]) -> None:
        change(header["content"])
        header["sha256"] = hashlib.sha256(encode_canonical(header["content"])).hexdigest()

    change_header(folder, both)


def replace_by_link(folder: Path) -> None:
    outside = folder.parents[3] / "outside.plan"
    shutil.move(folder / "engine.plan", outside)
    (folder / "engine.plan").symlink_to(outside)


def replace_by_folder(folder: Path) -> None:
    (folder / "engine.plan").unlink()
    (folder / "engine.plan").mkdir()


def replace_by_pipe(folder: Path) -> None:
    (folder / "engine.plan").unlink()
    os.mkfifo(folder / "engine.plan")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "bit flip": (lambda f: flip_bit(f / "engine.plan"), "SHA-256 of engine.plan differs"),
    "truncated": (
        lambda f: os.truncate(f / "engine.plan", 100),
        "engine.plan has 100 bytes, not 10240",
    ),
    "longer": (
        lambda f: (f / "engine.plan").write_bytes(FILES["engine.plan"] + b"x"),
        "engine.plan has 10241 bytes, at most 10240",
    ),
    "missing": (lambda f: (f / "timing.cache").unlink(), "timing.cache is missing"),
    "no header": (lambda f: (f / "entry.json").unlink(), "entry.json is missing"),
    "empty header": (lambda f: (f / "entry.json").write_bytes(b""), "entry.json cannot be read"),
    "header bit flip": (lambda f: flip_bit(f / "entry.json"), "entry.json"),
    "wrong JSON": (lambda f: (f / "entry.json").write_text("[1, 2]"), "is not that of an entry"),
    "deep JSON": (lambda f: (f / "entry.json").write_text("[" * 200_000), "entry.json"),
    "huge header": (lambda f: os.truncate(f / "entry.json", 5 << 20), "at most 4194304"),
    "other schema": (lambda f: change_header(f, lambda h: h.update(schema=99)), "schema 99"),
    "schema of words": (
        lambda f: change_header(f, lambda h: h.update(schema="1")),
        "not that of an entry",
    ),
    "changed fact": (
        lambda f: change_header(f, lambda h: h["content"]["facts"].update(build_ms=1.0)),
        "SHA-256 of entry.json differs",
    ),
    "other key": (
        lambda f: reseal(f, lambda c: c["key"].update(backend_version="9")),
        "not that of its folder",
    ),
    "no key": (lambda f: reseal(f, lambda c: c.pop("key")), "'key'"),
    "file outside": (
        lambda f: reseal(f, lambda c: c["files"].update({"../x": {"size": 0, "sha256": ""}})),
        "no name for a file",
    ),
    "size below zero": (
        lambda f: reseal(f, lambda c: c["files"]["engine.plan"].update(size=-1)),
        "size of engine.plan",
    ),
    "local date": (
        lambda f: reseal(f, lambda c: c.update(created="2026-01-01T00:00:00")),
        "time zone",
    ),
    "link": (replace_by_link, "engine.plan is no regular file"),
    "folder": (replace_by_folder, "engine.plan is no regular file"),
    "pipe": (replace_by_pipe, "engine.plan is no regular file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_reported_once_not_used_and_replaced(
    library: Library, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = store(library)
    other = store(library, precision="fp32")
    spoil, text = DAMAGES[damage]
    spoil(path)
    for _ in range(3):
        assert library.load(make_key()) is None
    assert len(caplog.records) == 1, caplog.text
    assert caplog.records[0].levelno == logging.WARNING
    assert text in caplog.text
    assert os.fspath(path) in caplog.text
    assert store(library) == path
    entry = library.load(make_key())
    assert entry is not None
    assert dict(entry.files) == FILES
    assert library.load(make_key(precision="fp32")) is not None
    assert {listing.path for listing in library.entries() if not listing.problem} == {path, other}


def test_a_link_is_not_followed_when_its_entry_goes(library: Library) -> None:
    path = store(library)
    replace_by_link(path)
    outside = path.parents[3] / "outside.plan"
    assert [r.reason for r in library.prune(unused_days=-1.0)] == ["not used for 0 days"]
    assert not path.exists()
    assert outside.read_bytes() == FILES["engine.plan"]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_link_on_the_way_is_not_followed(
    library: Library, level: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = store(library)
    victim = (path, path.parent, path.parents[1])[level]
    shutil.move(victim, tmp_path / "elsewhere")
    victim.symlink_to(tmp_path / "elsewhere")
    before = snapshot(tmp_path / "elsewhere")
    assert library.load(make_key()) is None
    assert library.entries() == []
    assert library.prune(unused_days=-1.0, limit_bytes=0) == []
    entry = library.store(make_key(), {"engine.plan": b"new"}, {})
    # Only the last one can make room without touching what is not the library's.
    assert (entry.path is not None) is (level == 0)
    assert dict(entry.files) == {"engine.plan": b"new"}
    assert snapshot(tmp_path / "elsewhere") == before
    assert ("cannot be written" in caplog.text) is (level > 0)


def test_what_is_not_the_library_s_is_moved_aside_not_removed(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    path = store(library)
    (path / "thesis").mkdir()
    (path / "thesis" / "chapter1").write_text("years of work")
    (path / "entry.json").unlink()
    assert library.load(make_key()) is None
    assert library.prune(find_stale=lambda key: "", unused_days=-1.0, limit_bytes=0) == []
    assert store(library) == path
    assert library.load(make_key()) is not None
    aside = [p for p in path.parent.iterdir() if p != path]
    assert [(p / "thesis" / "chapter1").read_text() for p in aside] == ["years of work"]
    assert os.fspath(aside[0]) in caplog.text


@pytest.mark.parametrize(
    "changes", [{"backend_version": "10.0.1"}, {"device": "NVIDIA H200, 9.0"}]
)
def test_an_entry_of_another_version_or_device_is_reported_once(
    library: Library, changes: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    path = store(library)
    store(library, graph_hash="c" * 64)
    for _ in range(2):
        assert library.load(make_key(**changes)) is None
    ((field, value),) = changes.items()
    assert len(caplog.records) == 1, caplog.text
    assert f"{field} {getattr(make_key(), field)} there, {value} here" in caplog.text
    assert os.fspath(path) in caplog.text
    assert library.load(make_key()) is not None
    store(library, **changes)
    assert library.load(make_key(**changes)) is not None
    assert len(caplog.records) == 1


def test_another_graph_or_shape_is_no_news(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    store(library)
    assert library.load(make_key(graph_hash="c" * 64)) is None
    assert library.load(make_key(shapes=((1,),))) is None
    assert library.load(make_key(kind="measurement")) is None
    assert not caplog.records


def test_an_entry_that_is_just_replaced_is_not_taken_for_a_damaged_one(
    library: Library, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files vanish under whoever looks at it; what is there now is what counts."""
    path = store(library)
    describe = library_module.describe_entry
    overtaken = []

    def overtake(folder: int, path: Path) -> Listing:
        if not overtaken:
            overtaken.append(path)
            Library(library.root).prune(unused_days=-1.0)
            store(library)
        return describe(folder, path)

    monkeypatch.setattr(library_module, "describe_entry", overtake)
    assert [(listing.path, listing.problem) for listing in library.entries()] == [(path, "")]
    overtaken.clear()
    store(library)
    assert overtaken
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert not caplog.records
