"""Where the library is, and what happens where it cannot be written; prune."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

import pytest
from library_entries import FACTS, FILES, make_key, snapshot, store

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.variants.library import library as library_module
from jetson_dnn_rt.variants.library.entry import (
    Header,
)
from jetson_dnn_rt.variants.library.library import Library, default_root


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "cache")


def test_default_folder_honours_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path))
    assert default_root() == tmp_path / "jetson_dnn_rt"
    monkeypatch.setenv("HOME", "/home/me")
    for value in ("", "relative/cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert default_root() == Path("/home/me/.cache/jetson_dnn_rt")


def test_a_user_without_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ConfigurationError, match="engine_cache or XDG_CACHE_HOME"):
        default_root()


def test_a_file_in_the_place_of_the_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(ConfigurationError, match="not a folder"):
        Library(tmp_path / "cache")
    with pytest.raises(ConfigurationError, match="cache"):
        Library(tmp_path / "cache" / "inner")


def test_a_folder_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigurationError, match="chmod -R go-w"):
        Library(tmp_path)


def test_the_library_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    library = Library(tmp_path / "link")
    store(library)
    assert Library(tmp_path / "disk").load(make_key()) is not None


def test_what_cannot_be_kept_is_used_and_said_once(
    library: Library, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # As for root the mode of a folder is no obstacle, the write itself fails.
    def fail(folder: int, name: str, data: bytes) -> None:
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


def test_a_folder_without_the_right_to_write(library: Library) -> None:
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


def test_a_place_that_cannot_be_written_is_refused_where_that_is_the_point() -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        Library(Path("/proc/jetson_dnn_rt")).check_writable()


def test_a_place_that_can_be_written_leaves_nothing_behind(library: Library) -> None:
    library.check_writable()
    left_by_a_dead_process = library.root / ".tmp" / "1-dead"
    left_by_a_dead_process.mkdir()
    os.utime(left_by_a_dead_process, (0, 0))
    library.check_writable()
    assert list((library.root / ".tmp").iterdir()) == []


def age(path: Path, days: float) -> None:
    then = datetime.now(timezone.utc).timestamp() - days * 86_400
    os.utime(path / "entry.json", (then, then))


def test_entries_are_listed_with_their_sizes(library: Library) -> None:
    paths = {store(library), store(library, precision="fp32"), store(library, model_hash="e" * 64)}
    listings = library.entries()
    assert {listing.path for listing in listings} == paths
    for listing in listings:
        assert isinstance(listing.header, Header)
        assert listing.header.facts == FACTS
        assert listing.problem == ""
        assert listing.size_bytes == sum(file.stat().st_size for file in listing.path.iterdir())
    assert library.size_bytes() == sum(listing.size_bytes for listing in listings)


def test_a_truncated_entry_is_listed_with_its_problem(library: Library) -> None:
    path = store(library)
    os.truncate(path / "engine.plan", 1)
    (listing,) = library.entries()
    assert listing.problem == "engine.plan has 1 bytes, not 10240"
    assert not listing.foreign


def test_prune_by_age_keeps_what_is_used(library: Library) -> None:
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


def test_prune_by_size_takes_the_oldest_first(library: Library) -> None:
    paths = [store(library, options=f"{days} days") for days in (1, 3, 2)]
    for path, days in zip(paths, (1, 3, 2), strict=True):
        age(path, days)
    one = library.entries()[0].size_bytes
    removals = library.prune(limit_bytes=2 * one + 10)
    assert [r.listing.path for r in removals] == [paths[1]]
    assert library.prune(limit_bytes=2 * one + 10) == []
    assert len(library.prune(limit_bytes=0)) == 2
    assert library.entries() == []


def test_prune_of_stale_ones_takes_damaged_ones_too(library: Library) -> None:
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


def test_prune_leaves_what_the_library_did_not_write(library: Library, tmp_path: Path) -> None:
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
    assert foreign[with_folder.name] == "folder is no regular file"


def test_prune_removes_empty_folders_and_what_a_dead_process_left(library: Library) -> None:
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
