# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A library runs nothing that another user can have put into it (EDGES 12)."""

from __future__ import annotations

import logging
import os

import pytest
from foreign import make_foreign
from library_entries import FILES, make_key, store

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.variants.library.library import Library

LEVELS = ("entry.json", "engine.plan", "entry", "variant", "model")


@pytest.fixture
def library(tmp_path):
    return Library(tmp_path / "home" / "cache")


def find_level(entry, level):
    """A file of an entry, its folder, or a folder above it."""
    return {"entry": entry, "variant": entry.parent, "model": entry.parents[1]}.get(
        level, entry / level
    )


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777])
def test_a_root_that_others_may_write_is_refused(library, mode):
    """EDGES 12: of the group too, and the sticky bit does not help the library itself."""
    store(library)
    library.root.chmod(mode)
    with pytest.raises(ConfigurationError, match=rf"chmod -R go-w {library.root}"):
        Library(library.root)


@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_a_folder_above_the_root_that_others_may_write_is_refused(library, mode):
    """EDGES 12: whoever may rename the library may replace it; also before there is one."""
    for _ in range(2):
        library.root.parent.mkdir(exist_ok=True)
        library.root.parent.chmod(mode)
        with pytest.raises(ConfigurationError, match=rf"chmod go-w {library.root.parent}"):
            Library(library.root)
        library.root.parent.chmod(0o755)
        store(library)


def test_the_library_of_another_user_is_refused(library, monkeypatch):
    """EDGES 12: however tight its modes are."""
    store(library)
    make_foreign(library.root, monkeypatch)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        Library(library.root)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("extra", [0o020, 0o002])
def test_a_level_that_others_may_write_is_reported_and_passed_over(library, level, extra, caplog):
    """EDGES 12: sub-folders and files; the other entries are served."""
    entry, other = store(library), store(library, model_hash="e" * 64)
    path = find_level(entry, level)
    path.chmod(path.stat().st_mode | extra)
    for _ in range(3):
        assert library.load(make_key()) is None
        good = library.load(make_key(model_hash="e" * 64))
        assert dict(good.files) == FILES
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"{path} may be written by other users" in caplog.text
    assert {listing.path for listing in library.entries() if not listing.problem} == {other}
    library.prune(find_stale=lambda key: "", dry_run=True)
    path.chmod(path.stat().st_mode & ~0o022)
    assert library.load(make_key()) is not None


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_of_another_user_is_not_loaded(library, level, monkeypatch):
    """EDGES 12: another user may change its mode at any time."""
    entry = store(library)
    make_foreign(find_level(entry, level), monkeypatch)
    assert library.load(make_key()) is None
    assert [listing for listing in library.entries() if not listing.problem] == []


def test_what_is_stored_again_takes_the_place_of_what_others_may_write(library):
    entry = store(library)
    (entry / "notes").write_text("of somebody")
    entry.chmod(0o777)
    assert library.load(make_key()) is None
    assert store(library) == entry
    assert library.load(make_key()) is not None
    aside = [path for path in entry.parent.iterdir() if path != entry]
    assert [(path / "notes").read_text() for path in aside] == ["of somebody"]


def test_no_umask_makes_a_library_that_is_refused(library):
    """EDGES 12: Ubuntu's umask leaves new files to the group."""
    before = os.umask(0)
    try:
        store(library)
    finally:
        os.umask(before)
    paths = [library.root.parent, library.root, *library.root.rglob("*")]
    assert {path.name: oct(path.stat().st_mode & 0o022) for path in paths} == {
        path.name: "0o0" for path in paths
    }
    assert Library(library.root).load(make_key()) is not None


def test_a_root_that_is_swapped_after_the_check_is_not_used(library, tmp_path, caplog):
    """EDGES 12: neither a link nor a folder that others may write gets into its place."""
    store(library)
    opened = Library(library.root)
    evil = Library(tmp_path / "evil")
    evil.store(make_key(), {"engine.plan": b"evil"}, {})
    library.root.rename(tmp_path / "gone")
    library.root.symlink_to(evil.root)
    assert opened.load(make_key()) is None
    assert opened.entries() == []
    library.root.unlink()
    evil.root.rename(library.root)
    library.root.chmod(0o777)
    assert opened.load(make_key()) is None
    assert opened.entries() == []
    assert opened.store(make_key(), FILES, {}).path is None
    assert caplog.text.count("may be written by other users") == 2  # not read, not written
