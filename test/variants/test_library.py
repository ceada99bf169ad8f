# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The library on disk: whole entries or none; damaged ones are reported, foreign ones stay."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from library_entries import FACTS, FILES, make_key, read_content, reseal, snapshot, store
from library_storm import storm

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.variants.library import library as library_module
from jetson_dnn_rt.variants.library.library import Library, default_root


def test_what_is_stored_is_found(library, caplog):
    stored = library.store(make_key(), FILES, FACTS, model="builtin:detector")
    for each in (library, Library(library.root)):
        entry = each.load(make_key())
        assert dict(entry.files) == FILES
        assert entry.facts == FACTS
        assert entry.key == make_key()
        assert entry.header == stored.header
        assert entry.path == stored.path
    assert not caplog.records


def test_a_person_finds_it_too(library):
    path = store(library)
    relative = path.relative_to(library.root).parts
    assert relative == (
        "builtin-detector-aaaaaaaaaaaa",
        "tucker-0.50@tensorrt-fp16",
        make_key().digest,
    )
    assert {file.name for file in path.iterdir()} == {"entry.json", *FILES}
    content = read_content(path)
    assert content["key"]["device"] == "NVIDIA Tegra Orin, 8.7"
    assert content["model"] == "builtin:detector"
    weights = make_key(backend="", backend_version="", device="", precision="", kind="weights")
    assert weights.variant == "tucker-0.50"


@pytest.mark.parametrize(
    ("model", "folder"),
    [
        ("", "aaaaaaaaaaaa"),
        ("onnx:/home/me/Yolo X/best model.onnx", "onnx-best-model.onnx-aaaaaaaaaaaa"),
        ("null:inference=3;decode=1,spin", "null-inference-3-decode-1-spin-aaaaaaaaaaaa"),
        ("onnx:../../..", "onnx-aaaaaaaaaaaa"),
        ("../../../etc", "etc-aaaaaaaaaaaa"),
    ],
)
def test_whatever_a_model_is_called_it_is_one_folder(library, model, folder):
    entry = library.store(make_key(), {}, {}, model=model)
    assert entry.path.relative_to(library.root).parts[0] == folder
    assert library.load(make_key()) is not None
    other = library.store(make_key(kind="measurement"), {}, {}, model="onnx:another.onnx")
    assert other.path.parents[1] == entry.path.parents[1]


def test_nothing_is_made_before_something_is_stored(library):
    assert library.load(make_key()) is None
    assert library.entries() == []
    assert library.size_bytes() == 0
    assert library.prune(unused_days=0.0) == []
    assert not library.root.exists()


def test_a_new_entry_takes_the_place_of_the_old_one(library):
    store(library)
    library.store(make_key(), {"engine.plan": b"new"}, {"n": 2})
    entry = library.load(make_key())
    assert dict(entry.files) == {"engine.plan": b"new"}
    assert entry.facts == {"n": 2}
    assert len(library.entries()) == 1
    assert list((library.root / ".tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("files", "facts", "text"),
    [
        ({"../x": b""}, {}, "name of a file"),
        ({"a/b": b""}, {}, "name of a file"),
        ({".hidden": b""}, {}, "name of a file"),
        ({"entry.json": b""}, {}, "another file"),
        ({"": b""}, {}, "name of a file"),
        ({f"file{i}": b"" for i in range(257)}, {}, "at most 256 long"),
        ({}, {"value": float("nan")}, "not JSON compliant"),
        ({}, {"value": "x" * (4 << 20)}, "must fit"),
    ],
)
def test_what_cannot_be_an_entry_is_refused(library, files, facts, text):
    with pytest.raises(ValueError, match=text):
        library.store(make_key(), files, facts)
    assert library.entries() == []


def test_a_file_that_is_too_large_is_refused(library, monkeypatch):
    monkeypatch.setattr(library_module, "MAX_FILE_BYTES", 3)
    with pytest.raises(ValueError, match="has 4 bytes, at most 3"):
        library.store(make_key(), {"a": b"1234"}, {})


def once(monkeypatch, name, then):
    """Do something before the first call of a function of the library; returns what was done."""
    call, done = getattr(library_module, name), []

    def overtake(*arguments):
        if not done:
            done.append(name)
            then()
        return call(*arguments)

    monkeypatch.setattr(library_module, name, overtake)
    return done


def test_processes_that_store_the_same_at_once(library):
    """EDGES campaign 7: nobody sees half an entry, every store finds its place."""
    figures, found = storm(library.root, processes=8, rounds=5)
    assert found == []
    assert figures["stores"] == 40


def test_an_entry_that_another_process_has_just_stored_is_not_moved_aside(
    library, monkeypatch, caplog
):
    """Campaign of concurrency: of eight processes, four left good entries aside as foreign."""
    path = store(library)
    gone = path.rename(path.with_name("gone"))
    lstat = Path.lstat

    def look_before_it_comes(self):
        try:
            return lstat(self)
        finally:
            if self == path and gone.is_dir():
                gone.rename(path)

    monkeypatch.setattr(Path, "lstat", look_before_it_comes)
    library._move_aside(None, path.relative_to(library.root).parts)
    assert path.is_dir()
    assert not caplog.records


def test_a_reader_that_is_overtaken_reads_the_new_entry(library, monkeypatch, caplog):
    store(library)
    new = {"engine.plan": b"new"}
    once(monkeypatch, "read_entry", lambda: library.store(make_key(), new, {}))
    entry = library.load(make_key())
    assert dict(entry.files) == {"engine.plan": b"new"}
    assert not caplog.records


def flip_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def change_header(folder, change):
    header = json.loads((folder / "entry.json").read_text())
    change(header)
    (folder / "entry.json").write_text(json.dumps(header))


def change_content(folder, change):
    content = read_content(folder)
    change(content)
    reseal(folder, content)


def replace_by_link(folder):
    outside = folder.parents[3] / "outside.plan"
    shutil.move(folder / "engine.plan", outside)
    (folder / "engine.plan").symlink_to(outside)


def replace_by(make):
    def replace(folder):
        (folder / "engine.plan").unlink()
        make(folder / "engine.plan")

    return replace


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
        lambda f: change_content(f, lambda c: c["key"].update(backend_version="9")),
        "not that of its folder",
    ),
    "no key": (lambda f: change_content(f, lambda c: c.pop("key")), "key is missing"),
    "file outside": (
        lambda f: change_content(
            f, lambda c: c["files"].update({"../x": {"size": 0, "sha256": ""}})
        ),
        "name of a file",
    ),
    "size below zero": (
        lambda f: change_content(f, lambda c: c["files"]["engine.plan"].update(size=-1)),
        "files.engine.plan.size",
    ),
    "local date": (
        lambda f: change_content(f, lambda c: c.update(created="2026-01-01T00:00:00")),
        "time zone",
    ),
    "link": (replace_by_link, "engine.plan is not a regular file"),
    "folder": (replace_by(os.mkdir), "engine.plan is not a regular file"),
    "pipe": (replace_by(os.mkfifo), "engine.plan is not a regular file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_reported_once_not_used_and_replaced(library, damage, caplog):
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
    assert dict(entry.files) == FILES
    assert library.load(make_key(precision="fp32")) is not None
    assert {listing.path for listing in library.entries() if not listing.problem} == {path, other}


def test_a_link_is_not_followed_when_its_entry_goes(library):
    path = store(library)
    replace_by_link(path)
    outside = path.parents[3] / "outside.plan"
    assert [r.reason for r in library.prune(unused_days=-1.0)] == ["not used for 0 days"]
    assert not path.exists()
    assert outside.read_bytes() == FILES["engine.plan"]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_link_on_the_way_is_not_followed(library, level, tmp_path, caplog):
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


def test_what_is_not_the_library_s_is_moved_aside_not_removed(library, caplog):
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
def test_an_entry_of_another_version_or_device_is_reported_once(library, changes, caplog):
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


def test_another_graph_or_shape_is_no_news(library, caplog):
    store(library)
    assert library.load(make_key(graph_hash="c" * 64)) is None
    assert library.load(make_key(shapes=((1,),))) is None
    assert library.load(make_key(kind="measurement")) is None
    assert not caplog.records


def test_an_entry_that_is_just_replaced_is_not_taken_for_a_damaged_one(
    library, monkeypatch, caplog
):
    """Its files vanish under whoever looks at it; what is there now is what counts."""
    path = store(library)

    def replace():
        Library(library.root).prune(unused_days=-1.0)
        store(library)

    overtaken = once(monkeypatch, "describe_entry", replace)
    assert [(listing.path, listing.problem) for listing in library.entries()] == [(path, "")]
    overtaken.clear()
    store(library)
    assert overtaken
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert not caplog.records


def test_default_folder_honours_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path))
    assert default_root() == tmp_path / "jetson_dnn_rt"
    monkeypatch.setenv("HOME", "/home/me")
    for value in ("", "relative/cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert default_root() == Path("/home/me/.cache/jetson_dnn_rt")


def test_a_user_without_home_is_told_what_to_set(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ConfigurationError, match="engine_cache or XDG_CACHE_HOME"):
        default_root()


def test_a_file_in_the_place_of_the_library_is_refused(tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(ConfigurationError, match="not a folder"):
        Library(tmp_path / "cache")
    with pytest.raises(ConfigurationError, match="cache"):
        Library(tmp_path / "cache" / "inner")


def test_the_library_itself_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    library = Library(tmp_path / "link")
    store(library)
    assert Library(tmp_path / "disk").load(make_key()) is not None


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_new_entry_is_there_before_the_old_one_is_deleted(library, monkeypatch, can_exchange):
    """EDGES, campaign 4: one kill in three between the two lost an entry, hours of tuning."""
    store(library)
    new = {"engine.plan": b"new"}
    delete, seen = shutil.rmtree, []

    def look(*args, **options):
        seen.append(Library(library.root).load(make_key()).files)
        delete(*args, **options)

    monkeypatch.setattr(shutil, "rmtree", look)
    if not can_exchange:
        monkeypatch.setattr(library_module, "exchange", lambda *args: False)
    assert library.store(make_key(), new, {}).path is not None
    assert seen == [new]
    assert list((library.root / ".tmp").iterdir()) == []


def test_what_cannot_be_kept_is_used_and_said_once(library, monkeypatch, caplog):
    # As for root the mode of a folder is no obstacle, the write itself fails.
    def fail(folder, name, data):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(library_module, "write_file", fail)
    for n in range(3):
        entry = library.store(make_key(), FILES, {"n": n})
        assert entry.path is None
        assert dict(entry.files) == FILES
        assert entry.facts == {"n": n}
    assert len(caplog.records) == 1
    assert "Read-only file system" in caplog.text
    assert library.load(make_key()) is None
    assert list((library.root / ".tmp").iterdir()) == []
    with pytest.raises(ConfigurationError, match="Read-only file system; not all"):
        library.check_kept()


def test_a_folder_without_the_right_to_write(library):
    store(library)
    folders = [library.root, *(p for p in library.root.rglob("*") if p.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    if os.access(library.root, os.W_OK):
        pytest.skip("root may write everywhere")
    try:
        assert library.load(make_key()) is not None
        assert library.store(make_key(kind="weights"), {}, {}).path is None
        with pytest.raises(ConfigurationError, match="cannot be written"):
            library.check_writable()
        with pytest.raises(ConfigurationError, match="cannot remove"):
            library.prune(limit_bytes=0)
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_a_place_that_cannot_be_written_is_refused_where_that_is_the_point():
    with pytest.raises(ConfigurationError, match="cannot be written"):
        Library(Path("/proc/jetson_dnn_rt")).check_writable()


def test_a_place_that_can_be_written_leaves_nothing_behind(library):
    library.check_writable()
    left_by_a_dead_process = library.root / ".tmp" / "1-dead"
    left_by_a_dead_process.mkdir()
    os.utime(left_by_a_dead_process, (0, 0))
    library.check_writable()
    assert list((library.root / ".tmp").iterdir()) == []


def age(path, days):
    then = datetime.now(timezone.utc).timestamp() - days * 86_400
    os.utime(path / "entry.json", (then, then))


def test_entries_are_listed_with_their_sizes(library):
    paths = {store(library), store(library, precision="fp32"), store(library, model_hash="e" * 64)}
    listings = library.entries()
    assert {listing.path for listing in listings} == paths
    for listing in listings:
        assert listing.header.facts == FACTS
        assert listing.problem == ""
        assert listing.size_bytes == sum(file.stat().st_size for file in listing.path.iterdir())
    assert library.size_bytes() == sum(listing.size_bytes for listing in listings)
    os.truncate(listings[0].path / "engine.plan", 1)
    listing = library.entries()[0]
    assert (listing.problem, listing.foreign) == ("engine.plan has 1 bytes, not 10240", False)


def test_prune_by_age_keeps_what_is_used(library):
    old, used, young = (store(library, options=name) for name in ("old", "used", "young"))
    for path, days in ((old, 40), (used, 40), (young, 10)):
        age(path, days)
    assert library.load(make_key(options="used")) is not None
    removals = library.prune(unused_days=30, dry_run=True)
    assert [(r.listing.path, r.reason) for r in removals] == [(old, "not used for 40 days")]
    assert old.exists()
    assert [r.listing.path for r in library.prune(unused_days=30)] == [old]
    assert not old.exists()
    assert library.load(make_key(options="used")) is not None
    assert library.load(make_key(options="young")) is not None


def test_prune_by_size_takes_the_oldest_first(library):
    paths = [store(library, options=f"{days} days") for days in (1, 3, 2)]
    for path, days in zip(paths, (1, 3, 2), strict=True):
        age(path, days)
    one = library.entries()[0].size_bytes
    removals = library.prune(limit_bytes=2 * one + 10)
    assert [r.listing.path for r in removals] == [paths[1]]
    assert library.prune(limit_bytes=2 * one + 10) == []
    assert len(library.prune(limit_bytes=0)) == 2
    assert library.entries() == []


def test_prune_of_stale_ones_takes_damaged_ones_too(library):
    good = store(library)
    stale = store(library, backend_version="7.0")
    damaged = store(library, options="damaged")
    (damaged / "entry.json").write_bytes(b"\0" * 10)
    removals = library.prune(
        find_stale=lambda key: "old TensorRT" if key.backend_version == "7.0" else ""
    )
    reasons = {r.listing.path: r.reason for r in removals}
    assert set(reasons) == {stale, damaged}
    assert reasons[stale] == "old TensorRT"
    assert "entry.json cannot be read" in reasons[damaged]
    assert good.exists()


def test_prune_of_superseded_ones_takes_those_of_earlier_exports(library):
    """Five exports of one network to the same file were five folders for ever."""
    name, now = "onnx:/models/net.onnx", datetime.now(timezone.utc)
    paths = {}
    for place, model_hash in enumerate(("a", "b", "c", "d")):
        key = make_key(model_hash=model_hash * 64)
        paths[model_hash] = library.store(key, FILES, FACTS, model=name).path
        # Stored two days after each other, the last three days ago; b is loaded to this day.
        days = 0 if model_hash == "b" else 9 - 2 * place
        created = (now - timedelta(days=9 - 2 * place)).isoformat(timespec="seconds")
        reseal(paths[model_hash], read_content(paths[model_hash]) | {"created": created})
        age(paths[model_hash], days)
    other = library.store(make_key(model_hash="e" * 64), FILES, FACTS, model="onnx:/else.onnx")
    assert library.prune(find_stale=lambda key: "") == []
    removals = library.prune(superseded=True, dry_run=True)
    assert {r.listing.path for r in removals} == {paths["a"], paths["c"]}
    stored = f"{now - timedelta(days=3):%Y-%m-%d}"
    assert removals[0].reason == f"of an earlier {name}: another was stored on {stored}"
    library.prune(superseded=True)
    assert [path.exists() for path in paths.values()] == [False, True, False, True]
    assert other.path.exists()


def test_prune_leaves_what_the_library_did_not_write(library, tmp_path):
    path = store(library)
    strangers = [
        library.root / "notes.txt",
        library.root / "models" / "variant" / ("a" * 64) / "entry.json",
        path.parents[1] / "README",
        path.parents[1] / "Not A Variant" / ("a" * 64) / "entry.json",
        path.parent / "not-a-digest" / "entry.json",
        path.parent / ("c" * 64) / "no_header",
        path.parent / ("d" * 64),
        tmp_path / "beside" / ("a" * 64) / "entry.json",
    ]
    for file in strangers:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    with_folder = store(library, options="with folder")
    (with_folder / "folder").mkdir()
    (path.parent / ("e" * 64)).symlink_to(tmp_path / "beside")
    before = snapshot(tmp_path)
    removals = library.prune(find_stale=lambda key: "all", unused_days=-1.0, limit_bytes=0)
    assert [r.listing.path for r in removals] == [path]
    after = snapshot(tmp_path)
    gone = {name for name in before if name not in after}
    prefix = os.fspath(path.relative_to(tmp_path))
    assert gone == {name for name in before if name == prefix or name.startswith(f"{prefix}/")}
    assert {name: after[name] for name in after} == {
        name: content for name, content in before.items() if name not in gone
    }
    foreign = {listing.path.name: listing.problem for listing in library.entries()}
    assert foreign["c" * 64] == "there is no entry.json"
    assert foreign[with_folder.name] == "folder is not a regular file"


def test_prune_removes_empty_folders_and_what_a_dead_process_left(library):
    path = store(library)
    temporary = library.root / ".tmp"
    for name, days in (("1-dead", 2.0), ("2-alive", 0.0)):
        (temporary / name).mkdir()
        (temporary / name / "part").write_bytes(b"x")
        then = datetime.now(timezone.utc).timestamp() - days * 86_400
        os.utime(temporary / name, (then, then))
    library.prune(unused_days=-1.0, dry_run=True)
    assert path.exists()
    assert (temporary / "1-dead").exists()
    library.prune(unused_days=-1.0)
    assert snapshot(library.root) == {
        ".tmp": "folder",
        ".tmp/2-alive": "folder",
        ".tmp/2-alive/part": b"x",
    }
