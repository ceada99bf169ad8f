# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Entries of a library as a file: what goes round, and what a stranger's file cannot do."""

from __future__ import annotations

import io
import json
import os
import tarfile

import pytest
from library_entries import FACTS, FILES, make_key, seal, snapshot

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.variants.library import transfer as library_transfer
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.library.transfer import export_entries, import_entries

TUNING = make_key(kind="tuning", backend="tvm", device="", options="llvm znver4 threads=1")
Members = list[tuple[tarfile.TarInfo, bytes]]


def want_all(listing):
    return True


@pytest.fixture
def file(library, tmp_path):
    """A file of one entry with three files."""
    library.store(TUNING, FILES, FACTS, model="builtin:detector")
    export_entries(library, tmp_path / "one.tar", want_all)
    return tmp_path / "one.tar"


def read(file):
    with tarfile.open(file, "r:") as archive:
        members = []
        for member in archive:
            stream = archive.extractfile(member)
            members.append((member, stream.read()))
        return members


def write(file, members, mode="w"):
    with tarfile.open(file, mode) as archive:
        for member, data in members:
            archive.addfile(member, io.BytesIO(data))


def test_entries_come_back_as_they_were(library, tmp_path):
    keys = [TUNING, make_key(kind="weights", backend=""), make_key(kind="measurement")]
    for key in keys[:2]:
        library.store(key, FILES, FACTS, model="builtin:detector")
    library.store(keys[2], {}, FACTS)
    file = tmp_path / "all.tar"
    sent = export_entries(library, file, want_all)
    assert {transfer.header.key for transfer in sent} == set(keys)
    assert [transfer.reason for transfer in sent] == ["", "", ""]
    assert list(tmp_path.glob(".*")) == []  # no half of a file is left
    other = Library(tmp_path / "other")
    taken = import_entries(other, file)
    assert {transfer.header.key for transfer in taken} == set(keys)
    for key in keys:
        here, there = library.load(key), other.load(key)
        assert there.files == here.files
        assert there.facts == here.facts
        assert there.header.model == here.header.model


def test_only_what_is_wanted_goes(library, tmp_path):
    library.store(TUNING, FILES, FACTS)
    library.store(make_key(kind="weights"), FILES, FACTS)
    file = tmp_path / "some.tar"

    def is_tuning(listing):
        return listing.header is not None and listing.header.key.kind == "tuning"

    (sent,) = export_entries(library, file, is_tuning)
    assert sent.header.key == TUNING
    assert len(read(file)) == 1 + len(FILES)


@pytest.mark.parametrize("backend", ["tensorrt", "tensorrt_dla0", "tvm"])
def test_machine_code_neither_goes_nor_comes(library, tmp_path, backend, monkeypatch):
    """A hash says that a file is what its sender made, not that he means well."""
    library.store(make_key(kind="artefact", backend=backend), FILES, FACTS)
    file = tmp_path / "engine.tar"
    (sent,) = export_entries(library, file, want_all)
    assert "machine code" in sent.reason
    assert read(file) == []
    with monkeypatch.context() as patch:
        patch.setattr(library_transfer, "holds_code", lambda key: False)
        export_entries(library, file, want_all)
    assert len(read(file)) == 1 + len(FILES)
    other = Library(tmp_path / "other")
    (taken,) = import_entries(other, file)
    assert "machine code" in taken.reason
    assert other.entries() == []


def test_an_exported_network_is_data(library, tmp_path):
    key = make_key(kind="artefact", backend="onnx", backend_version="torch 2.9.0")
    library.store(key, FILES, FACTS)
    export_entries(library, tmp_path / "onnx.tar", want_all)
    other = Library(tmp_path / "other")
    (taken,) = import_entries(other, tmp_path / "onnx.tar")
    assert taken.reason == ""
    assert other.load(key) is not None


def test_what_is_there_stays_unless_it_is_to_be_replaced(library, file, tmp_path):
    library.store(TUNING, {"records.json": b"newer"}, {})
    (kept,) = import_entries(library, file)
    assert "the library has it" in kept.reason
    entry = library.load(TUNING)
    assert entry.files == {"records.json": b"newer"}
    (taken,) = import_entries(library, file, replace=True)
    assert taken.reason == ""
    entry = library.load(TUNING)
    assert entry.files == FILES


def test_a_damaged_entry_is_left_out(library, tmp_path):
    path = library.store(TUNING, FILES, FACTS).path
    (path / "engine.plan").write_bytes(b"x" * len(FILES["engine.plan"]))
    (sent,) = export_entries(library, tmp_path / "one.tar", want_all)
    assert sent.reason == "it is damaged, or gone"
    assert read(tmp_path / "one.tar") == []


def rename(old, new):
    def change(members):
        for member, _ in members:
            if member.name.endswith(old):
                member.name = member.name[: -len(old)] + new
        return members

    return change


def retype(kind):
    def change(members):
        member, _ = members[1]
        member.type, member.size, member.linkname = kind, 0, "/etc/passwd"
        return members

    return change


def spoil(members):
    member, data = members[1]
    members[1] = member, bytes(len(data))
    return members


def cut(members):
    member, data = members[1]
    member.size = len(data) - 1
    return members


def inflate(members):
    """A header whose own hash is right, and that announces more than memory holds."""
    member, data = members[0]
    header = json.loads(data)
    for facts in header["content"]["files"].values():
        facts["size"] = 1 << 29
    text = seal(header["content"]).encode()
    member.size = len(text)
    members[0] = member, text
    return members


def move(members):
    """The key is right, the folder is another's."""
    for member, _ in members:
        member.name = "0" * 64 + member.name[64:]
    return members


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rename("engine.plan", "../../escape"), "is not a file of an entry"),
        (rename("engine.plan", ".hidden"), "is not a file of an entry"),
        (rename("engine.plan", "other.plan"), "is not of the entry before it"),
        (rename("engine.plan", "timing.cache"), "has 10240 bytes, not 0"),
        (retype(tarfile.SYMTYPE), "is not a file of an entry"),
        (retype(tarfile.LNKTYPE), "is not a file of an entry"),
        (retype(tarfile.FIFOTYPE), "is not a file of an entry"),
        (retype(tarfile.DIRTYPE), "is not a file of an entry"),
        (spoil, "SHA-256 of .*engine.plan differs"),
        (cut, "has 10239 bytes, not 10240"),
        (move, "its key is not that of its folder"),
        (inflate, "1610612736 bytes, at most"),
        (lambda members: members[1:], "an entry begins with entry.json"),
        (lambda members: members[:-1], "it ends within an entry, weights.safetensors is missing"),
        (lambda members: [*members[:2], members[1], *members[2:]], "is not of the entry before"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(file, tmp_path, change, words):
    write(file, change(read(file)))
    folder = tmp_path / "inner"
    folder.mkdir()
    other = Library(folder / "other")
    before = {name for name in snapshot(tmp_path) if not name.startswith("inner/other")}
    with pytest.raises(ConfigurationError, match=words):
        import_entries(other, file)
    assert other.entries() == []
    after = {name for name in snapshot(tmp_path) if not name.startswith("inner/other")}
    assert after == before


def test_what_is_no_archive_is_refused(library, tmp_path):
    file = tmp_path / "no.tar"
    with pytest.raises(ConfigurationError, match="No such file"):
        import_entries(library, file)
    file.write_bytes(os.urandom(2048))
    with pytest.raises(ConfigurationError, match="is refused"):
        import_entries(library, file)


def test_a_compressed_file_is_refused(library, file, tmp_path):
    """A few kilobytes could be as many gigabytes."""
    squeezed = tmp_path / "one.tar.gz"
    write(squeezed, read(file), "w:gz")
    with pytest.raises(ConfigurationError, match="is refused"):
        import_entries(library, squeezed)


def test_a_folder_that_cannot_be_written(library, tmp_path):
    library.store(TUNING, FILES, FACTS)
    with pytest.raises(ConfigurationError, match="cannot be written: No such file"):
        export_entries(library, tmp_path / "no" / "one.tar", want_all)
