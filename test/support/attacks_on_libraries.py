# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Libraries of built variants, and files of their entries, that hold code of somebody else."""

from __future__ import annotations

import functools
import io
import os
import tarfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from attack_arena import Arena, Hostile, attack, expect
from library_entries import FACTS, make_key
from malice import annotate_records, make_library, make_llvm_constructor

from jetson_dnn_rt.variants.library import transfer
from jetson_dnn_rt.variants.library.library import Library

CODE = "kernels.so"
RUN = """
import ctypes, os, pathlib
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.variants.library.library import Library
try:
    library = Library(pathlib.Path({given!r}))
    entries = [library.load(one.header.key) for one in library.entries() if one.header]
except JetsonDnnRtError as error:
    print(error)
    raise SystemExit(2)
for entry in entries:
    if entry is not None and {code!r} in entry.files:  # loads the bytes as back end tvm does
        path = pathlib.Path(os.environ['TMPDIR'], 'own.so')
        path.write_bytes(entry.files[{code!r}])
        ctypes.CDLL(str(path))
"""


def _store(arena: Arena, root: Path) -> Path | None:
    """A library with machine code in its entry; returns the entry's folder."""
    code = make_library(arena.root / "marks" / "own.so", arena.marker)
    if code is None:
        return None
    key = make_key(backend="tvm", options="llvm threads=1")
    return (
        Library(root).store(key, {CODE: code.read_bytes()}, FACTS, model="builtin:detector").path
    )


def _register(
    name: str, change: Callable[[Arena, Path, Path], str], *, needs_root: bool = False
) -> None:
    """`change` gets the library and its entry, and returns words of the refusal."""

    @attack("library", name, edge=12)
    def lay(arena: Arena) -> Hostile | None:
        root = arena.inside / "shared" / "library"
        entry = _store(arena, root)
        if entry is None:
            return None
        words = change(arena, root, entry)
        control = f"import ctypes\nctypes.CDLL({os.fspath(entry / CODE)!r})"
        return Hostile(
            os.fspath(root), control, sees=False, needs_root=needs_root,
            check=expect(words) if words else None,
        )  # fmt: skip


def _open_root(arena: Arena, root: Path, entry: Path) -> str:
    root.chmod(arena.rng.choice([0o775, 0o757, 0o777, 0o1777]))
    return "chmod -R go-w"


def _open_above(arena: Arena, root: Path, entry: Path) -> str:
    root.parent.chmod(arena.rng.choice([0o775, 0o777]))
    return "chmod go-w"


def _open_level(arena: Arena, root: Path, entry: Path) -> str:
    levels = (entry.parent.parent, entry.parent, entry, entry / "entry.json", entry / CODE)
    path = arena.rng.choice(levels)
    path.chmod(path.stat().st_mode | arena.rng.choice([0o020, 0o002]))
    return ""


def _give_root(arena: Arena, root: Path, entry: Path) -> str:
    for folder, _, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, 12345, 12345)
    return "belongs to another user"


def _give_level(arena: Arena, root: Path, entry: Path) -> str:
    os.chown(arena.rng.choice([entry.parent, entry, entry / CODE]), 12345, 12345)
    return ""


def _link_file(arena: Arena, root: Path, entry: Path) -> str:
    secret = arena.secret("own.so", (entry / CODE).read_bytes())
    (entry / CODE).unlink()
    (entry / CODE).symlink_to(secret)
    return ""


def _link_folder(arena: Arena, root: Path, entry: Path) -> str:
    entry.rename(arena.outside / entry.name)
    entry.symlink_to(arena.outside / entry.name)
    return ""


_register("a root that others may write", _open_root)
_register("a folder above it that others may write", _open_above)
_register("a level of it that others may write", _open_level)
_register("one of another user", _give_root, needs_root=True)
_register("a level of another user", _give_level, needs_root=True)
_register("a file that is a link", _link_file)
_register("an entry that is a link", _link_folder)


# -- files of entries --------------------------------------------------------------------------

Member = tuple[tarfile.TarInfo, bytes]
_EXTRACT = """
import os, pathlib, tarfile
folder = pathlib.Path(os.environ['TMPDIR'])
careless = {{'filter': 'fully_trusted'}} if hasattr(tarfile, 'data_filter') else {{}}
tarfile.open({path!r}).extractall(folder, **careless)
for path in folder.rglob('*'):
    if path.is_file():
        path.read_bytes()
        if path.stat().st_nlink > 1:
            open({marker!r}, 'w').close()
"""


def _register_member(name: str, make: Callable[[Arena, str], Member]) -> None:
    """`make` gets the folder of the entry in the archive."""

    @attack("tar", name)
    def lay(arena: Arena) -> Hostile:
        library = Library(arena.root / "sound")
        keys = (make_key(kind="weights", backend=""), make_key(kind="tuning", backend="tvm"))
        for key in keys:
            library.store(key, {"a.bin": b"a", "b.bin": b"b"}, FACTS, model="builtin:detector")
        path = arena.inside / "entries.tar"
        transfer.export_entries(library, path, lambda listing: True)
        with tarfile.open(path) as archive:
            members = [(one, archive.extractfile(one).read()) for one in archive]  # type: ignore[union-attr]
        folder = arena.rng.choice(members)[0].name.split("/")[0]
        members.insert(arena.rng.randrange(len(members) + 1), make(arena, folder))
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            for member, data in members:
                archive.addfile(member, io.BytesIO(data))
        return Hostile(
            os.fspath(path), _EXTRACT.format(path=os.fspath(path), marker=os.fspath(arena.marker))
        )


def _member(name: str, data: bytes = b"", **changes: object) -> Member:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for key, value in changes.items():
        setattr(member, key, value)
    return member, data


_register_member(
    "a link to a file elsewhere",
    lambda arena, folder: _member(
        f"{folder}/c.bin", type=tarfile.SYMTYPE, linkname=os.fspath(arena.secret("precious"))
    ),
)
_register_member(
    "a hard link to a file elsewhere",
    lambda arena, folder: _member(
        f"{folder}/c.bin", type=tarfile.LNKTYPE, linkname=os.fspath(arena.secret("precious"))
    ),
)
_register_member("an absolute name", lambda arena, folder: _member(os.fspath(arena.marker), b"x"))
_register_member(
    "a name that leads out",
    lambda arena, folder: _member(f"{folder}/../../marks/{arena.marker.name}", b"x"),
)
_register_member(
    "a name in an extended header",
    lambda arena, folder: _member(
        f"{folder}/c.bin", b"x", pax_headers={"path": os.fspath(arena.marker)}
    ),
)


@attack("tar", "a device")
def lay_device(arena: Arena) -> Hostile:
    path = arena.inside / "entries.tar"
    with tarfile.open(path, "w") as archive:
        kinds = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
        member, _ = _member(f"{'a' * 64}/c.bin", type=arena.rng.choice(kinds), devmajor=1)
        archive.addfile(member)
    return Hostile(os.fspath(path))


@attack("tar", "machine code", edge=2)
def lay_code(arena: Arena) -> Hostile | None:
    entry = _store(arena, arena.root / "sound")
    if entry is None:
        return None
    kept, transfer.holds_code = transfer.holds_code, lambda key: False
    try:
        path = arena.inside / "entries.tar"
        transfer.export_entries(Library(arena.root / "sound"), path, lambda listing: True)
    finally:
        transfer.holds_code = kept
    control = f"import ctypes\nctypes.CDLL({os.fspath(entry / CODE)!r})"
    return Hostile(os.fspath(path), control)


# -- tuning databases --------------------------------------------------------------------------

COMPILE = """
import os, pathlib
import jetson_dnn_rt.tvm.database as database_module
import jetson_dnn_rt.tvm.compile as compile_module
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.target import find_local_target
from tvm_networks import make_small
{careless}
files = {{path.name: path.read_bytes() for path in pathlib.Path({given!r}).iterdir()}}
target = find_local_target(1)
database = database_module.TuningDatabase.from_files(files, target)
scheduled = compile_module.schedule(lower(make_small(), 'fp32', target), target, database)
path = pathlib.Path(os.environ['TMPDIR'], 'own.so')
compile_module.export_library(compile_module.compile_module(scheduled, target), path)
compile_module.load_library(path)
"""
_CARELESS = (
    "database_module.check_records = lambda data, target: data\n"
    "database_module.check_workloads = lambda data: data\n"
    "compile_module.check_scheduled = lambda lowered, module: None\n"
)


@functools.cache
def _tune() -> dict[str, bytes]:
    from tvm_networks import make_small, tune_model

    from jetson_dnn_rt.tvm.database import TuningDatabase
    from jetson_dnn_rt.tvm.target import find_local_target

    database = TuningDatabase(find_local_target(1))
    tune_model(make_small(), database)
    return database.to_files()


@attack("tuning", "code in an annotation of a record", edge=2, slow=True)
def lay_annotation(arena: Arena) -> Hostile | None:
    if find_spec("tvm") is None or find_spec("xgboost") is None:
        return None
    files = dict(_tune())
    code = make_llvm_constructor(arena.marker)
    files["records.json"] = annotate_records(files["records.json"], "pragma_import_llvm", code)
    for name, data in files.items():
        arena.write(f"tuned/{name}", data)
    given = os.fspath(arena.inside / "tuned")
    return Hostile(given, COMPILE.format(careless=_CARELESS, given=given))
