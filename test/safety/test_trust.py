# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Code is taken only from where nobody else can have put it (EDGES 12)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from foreign import make_foreign

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.sources.files import read_model_file
from jetson_dnn_rt.safety.trust import (
    FOLDER,
    UntrustedError,
    check_trusted,
    find_fault,
    open_code,
    open_trusted,
    private_folder,
)


@pytest.fixture
def code(tmp_path):
    """A file four levels below the folder of the test."""
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    for level in (folder, *folder.parents[:2]):
        level.chmod(0o755)
    (folder / "code.so").write_bytes(b"code")
    (folder / "code.so").chmod(0o644)
    return folder / "code.so"


def test_what_is_ours_is_trusted(code, monkeypatch):
    assert check_trusted(code) == code.resolve()
    monkeypatch.chdir(code.parent)
    assert check_trusted(Path("code.so")) == code.resolve()
    code.chmod(0o400)
    assert check_trusted(code) == code.resolve()


@pytest.mark.parametrize("level", range(-1, 3))
@pytest.mark.parametrize("others", [0o020, 0o002, 0o022])
def test_what_others_may_write(code, level, others):
    """EDGES 12: the file, and a folder on every level above it, named with the fix."""
    path = code if level < 0 else code.parents[level]
    path.chmod(path.stat().st_mode | others)
    with pytest.raises(UntrustedError, match=rf"may be written .*: chmod go-w {path}$"):
        check_trusted(code)
    path.chmod(path.stat().st_mode & ~others)
    assert check_trusted(code)


@pytest.mark.parametrize("level", range(-1, 3))
def test_what_belongs_to_another_user(code, level, monkeypatch):
    """EDGES 12: the file, and every folder above it."""
    make_foreign(code if level < 0 else code.parents[level], monkeypatch)
    with pytest.raises(UntrustedError, match=r"belongs to another user .*: copy it, or chown"):
        check_trusted(code)


def test_the_sticky_bit_will_do_only_for_folders_of_root(code, monkeypatch):
    """EDGES 12: /tmp is no way in, and no obstacle."""
    folder = code.parents[1]
    folder.chmod(0o1777)
    status = os.stat("/tmp")
    assert status.st_uid == 0
    assert find_fault(status, Path("/tmp"), above=True) == ""
    assert "may be written" in find_fault(status, Path("/tmp"))  # itself, it is no library
    if os.geteuid() == 0:
        assert check_trusted(code)
        make_foreign(folder, monkeypatch)
    with pytest.raises(UntrustedError):
        check_trusted(code)


def test_links_are_resolved_once(code, tmp_path):
    """EDGES 12: a link that others may change is not followed a second time."""
    folder = tmp_path / "everybody"
    folder.mkdir()
    folder.chmod(0o777)
    link = folder / "link.so"
    link.symlink_to(code)
    assert check_trusted(link) == code.resolve()
    for flags, path in ((os.O_RDONLY, link), (FOLDER, tmp_path / "loop")):
        if not path.is_symlink():
            path.symlink_to(code.parent)
        with pytest.raises(OSError, match=r"may be written|symbolic|Not a directory"):
            open_trusted(path, flags)


def test_what_is_swapped_on_the_way_is_not_opened(code, tmp_path, monkeypatch):
    """EDGES 12: a folder replaced right after it was opened leaves the one that was checked."""
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "code.so").write_bytes(b"evil")
    open_really = os.open

    def swap(path, flags, *, dir_fd=None):
        fd = open_really(path, flags, dir_fd=dir_fd)
        if path == "c":
            code.parent.rename(tmp_path / "gone")
            evil.rename(code.parent)
        return fd

    monkeypatch.setattr(os, "open", swap)
    with open(open_trusted(code.resolve(), os.O_RDONLY), "rb") as file:
        assert file.read() == b"code"


def test_what_is_missing_is_not_trusted(tmp_path):
    """Who puts it there after the check was not checked."""
    with pytest.raises(UntrustedError, match="none does not exist"):
        check_trusted(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        open_code(tmp_path / "none")
    with pytest.raises(ModelError, match=r"model file .*none does not exist"):
        read_model_file(tmp_path / "none", is_code=True)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "loop", tmp_path / "file" / "inner"):
        with pytest.raises(UntrustedError, match="cannot be opened"):
            check_trusted(path)


@pytest.mark.parametrize("moment", ["before it is opened", "after it was opened"])
def test_a_file_that_comes_and_goes_is_never_read(tmp_path, monkeypatch, moment):
    """What is checked is what is read: nobody's file can come in between."""
    path = tmp_path / "m.pt2"
    evil = tmp_path / "evil"
    evil.write_bytes(b"evil")
    evil.chmod(0o666)
    if moment == "after it was opened":
        path.write_bytes(b"good")
    open_really = os.open

    def swap(name, flags, mode=0o777, *, dir_fd=None):
        try:
            return open_really(name, flags, mode, dir_fd=dir_fd)
        finally:
            if name == path.name and not flags & os.O_DIRECTORY:
                path.unlink(missing_ok=True)
                path.hardlink_to(evil)

    monkeypatch.setattr(os, "open", swap)
    if moment == "after it was opened":
        assert read_model_file(path, is_code=True) == b"good"
    else:
        with pytest.raises(ModelError, match="does not exist"):
            read_model_file(path, is_code=True)
    assert path.read_bytes() == b"evil"
    with pytest.raises(UntrustedError, match="may be written by other users"):
        read_model_file(path, is_code=True)


def test_pipes_are_no_code(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for is_code in (False, True):
        with pytest.raises(ModelError, match="not a regular file"):
            read_model_file(tmp_path / "pipe", is_code=is_code)


def test_descriptors_are_closed(code):
    before = len(os.listdir("/proc/self/fd"))
    check_trusted(code)
    code.chmod(0o666)
    with pytest.raises(UntrustedError):
        check_trusted(code)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_temporary_folder_for_code(tmp_path, monkeypatch):
    """EDGES 12: code that is loaded by its path lies where nobody can change it meanwhile."""
    with private_folder() as folder:
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()
    everybody = tmp_path / "everybody"
    everybody.mkdir()
    everybody.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(everybody))
    with pytest.raises(UntrustedError, match="may be written"), private_folder():
        pytest.fail("it is used")
    assert list(everybody.iterdir()) == []
