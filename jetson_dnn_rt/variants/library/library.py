# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Built variants on disk: made once, checked on every load, found by their key.

::

    ~/.cache/jetson_dnn_rt/                     $XDG_CACHE_HOME is honoured
      builtin-detector-3f2a91bc04d7/            the model's name and the start of its hash
        tucker-0.50@torch-fp32/                 the variant
          9c41.../                              the digest of the entry's key
            entry.json                          key, sizes and hashes of the files, facts
            weights.safetensors                 files

An entry appears by one rename of a finished folder, so that no reader ever sees half of it, and
two processes that build the same thing at once end with the whole entry of one of them. A reader
that is overtaken by such a change reads again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.printable import make_printable
from jetson_dnn_rt.safety.trust import UntrustedPathError
from jetson_dnn_rt.variants.library.entry import (
    HEADER,
    MAX_FILE_BYTES,
    DamagedEntryError,
    Entry,
    EntryKey,
    FileFacts,
    Header,
    OtherSchemaError,
)
from jetson_dnn_rt.variants.library.files import (
    Listing,
    describe_entry,
    exchange,
    list_names,
    make_root,
    open_below,
    read_entry,
    touch,
    write_file,
)

__all__ = ["Entry", "EntryKey", "Library", "Listing", "Removal", "default_root"]

logger = logging.getLogger(__name__)

_TEMPORARY = ".tmp"
_ABANDONED_S = _DAY_S = 86_400.0
"""A temporary folder that is older belongs to a process that died."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_VARIANT = re.compile(r"[a-z0-9][a-z0-9._-]*(@[a-z0-9._-]+)?")
_MODEL = re.compile(r"([a-z0-9._-]+-)?[0-9a-f]{12}")
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
# Of two processes that change one entry again and again.
_ATTEMPTS = 16


def default_root() -> Path:
    """``$XDG_CACHE_HOME/jetson_dnn_rt``, by default ``~/.cache/jetson_dnn_rt``.

    Raises `ConfigurationError` when the user has no home folder.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The specification wants a relative path to be ignored.
    if os.path.isabs(cache):
        return Path(cache, "jetson_dnn_rt")
    try:
        return Path.home() / ".cache" / "jetson_dnn_rt"
    except RuntimeError as error:
        raise ConfigurationError(
            f"no home folder ({error}): set engine_cache or XDG_CACHE_HOME"
        ) from error


@dataclass(frozen=True)
class Removal:
    """An entry that `Library.prune` removed, or would have, and why."""

    listing: Listing
    reason: str


class Library:
    """Entries on disk, by default below `default_root`; nothing is made before the first `store`.

    From one that cannot be written entries are still loaded; stored ones then stay in memory,
    which is logged once. Raises `ConfigurationError` when the root is not a folder, or it or a
    folder above it is not trusted: its content is run.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_root() if root is None else Path(root)
        self.store_error = ""  # why an entry could not be stored; empty where all could
        self._reported: set[str] = set()
        try:
            self.root = self.root.expanduser().resolve()
            with open_below(self.root, ()):
                pass
        except FileNotFoundError:
            return
        except NotADirectoryError as error:
            raise ConfigurationError(f"library {self.root} is not a folder") from error
        except (OSError, RuntimeError) as error:  # not trusted, no home folder, a loop of links
            raise ConfigurationError(f"library {self.root}: {_tell(error)}") from error

    def check_writable(self) -> None:
        """Raise `ConfigurationError`, with the reason, when nothing can be stored."""
        try:
            os.rmdir(self._make_temporary())
            self._remove_abandoned()
        except OSError as error:
            raise ConfigurationError(
                f"library {self.root} cannot be written: {error.strerror}; make it writable or "
                "name another folder as engine cache"
            ) from error

    def check_kept(self) -> None:
        """Raise `ConfigurationError`, with the reason, when an entry could not be stored."""
        if self.store_error:
            raise ConfigurationError(
                f"library {self.root} cannot be written: {self.store_error}; not all that was "
                "built is kept: make room or name another folder as engine cache, and build again"
            )

    # -- load ----------------------------------------------------------------------------------

    def load(self, key: EntryKey) -> Entry | None:
        """Read an entry whole and check it: sizes, SHA-256 of every file, the key.

        None where there is none that can be used. A damaged one is logged once and not used; the
        next `store` of its key replaces it. One of another version of the back end or another
        device is logged too.
        """
        for model in self._model_folders(key):
            parts = (model, key.variant, key.digest)
            path = self.root.joinpath(*parts)
            try:
                return self._read(path, parts)
            except FileNotFoundError:
                pass
            except (DamagedEntryError, OtherSchemaError, OSError) as error:
                self._report_error(path, error, "it is not used and will be built again")
        self._report_outdated(key)
        return None

    def _model_folders(self, key: EntryKey) -> list[str]:
        """Folders of the key's model: one, but for two names or two processes at once."""
        start = key.model_hash[:12]
        names = filter(_MODEL.fullmatch, self._names())
        return [name for name in names if name == start or name.endswith(f"-{start}")]

    def _read(self, path: Path, parts: tuple[str, ...]) -> Entry:
        for attempt in range(_ATTEMPTS):
            with open_below(self.root, parts) as folder:
                try:
                    entry = read_entry(folder, path)
                    touch(folder)
                    return entry
                except (DamagedEntryError, OSError):
                    # Perhaps another process put a new entry into its place meanwhile.
                    if attempt == _ATTEMPTS - 1 or not self._was_replaced(folder, parts):
                        raise
        raise AssertionError("unreachable")

    def _was_replaced(self, folder: int, parts: tuple[str, ...]) -> bool:
        try:
            now = os.stat(self.root.joinpath(*parts), follow_symlinks=False)
        except FileNotFoundError:
            return True
        before = os.fstat(folder)
        return (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino)

    def _report_outdated(self, key: EntryKey) -> None:
        """Log that the same entry exists for another version or device."""
        for path, other in self._walk_alike(key, {"backend_version", "device"}):
            text = ", ".join(
                f"{field} {there} there, {here} here"
                for field, (there, here) in other.differences(key).items()
            )
            self._report(path, f"{text}; it is not used and will be built again")

    def list_alike(self, key: EntryKey, fields: Set[str]) -> list[EntryKey]:
        """Keys of other entries of the same variant that differ in no more than these fields."""
        return [other for _, other in self._walk_alike(key, fields)]

    def _walk_alike(self, key: EntryKey, fields: Set[str]) -> Iterator[tuple[Path, EntryKey]]:
        for model in self._model_folders(key):
            for name in self._names(model, key.variant):
                listing = self._look((model, key.variant, name))
                if listing is not None and listing.header is not None:
                    other = listing.header.key
                    if other != key and set(other.differences(key)) <= fields:
                        yield listing.path, other

    def _names(self, *parts: str) -> list[str]:
        """Names in a folder; one that is not trusted is logged once and passed over."""
        try:
            return list_names(self.root, parts)
        except PermissionError as error:
            self._report_error(self.root.joinpath(*parts), error, "it is passed over")
            return []

    def _report_error(self, path: Path, error: Exception, consequence: str) -> None:
        if isinstance(error, UntrustedPathError):  # once, for all that lies below it
            path, consequence = Path(error.filename), "it is not used, nor what is in it"
        self._report(path, f"{_tell(error)}; {consequence}")

    def _report(self, path: Path, text: str) -> None:
        self._warn_once(f"library entry {path}: {text}")

    def _warn_once(self, message: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            logger.warning("%s", message)

    # -- store ---------------------------------------------------------------------------------

    def store(
        self,
        key: EntryKey,
        files: Mapping[str, bytes],
        facts: Mapping[str, Any],
        *,
        model: str = "",
    ) -> Entry:
        """Store an entry, in the place of any other of the same key.

        Returns it as `load` would give it; without a path where it could not be stored, which is
        logged once as a warning. Raises `ValueError` when a name, a size or the facts cannot be
        stored.

        Parameters
        ----------
        files : mapping of str to bytes
            By name: letters, digits, ``.``, ``_`` and ``-``.
        facts : mapping
            Whatever JSON can hold.
        model : str
            The model as the user named it, for those who look into the folder.
        """
        for name, data in files.items():
            if len(data) > MAX_FILE_BYTES:
                raise ValueError(f"{name} has {len(data)} bytes, at most {MAX_FILE_BYTES}")
        header = Header(
            key,
            model,
            datetime.now(timezone.utc).replace(microsecond=0),
            {name: FileFacts.of(data) for name, data in files.items()},
            dict(facts),
        )
        text = header.encode()
        # As a reader will see them: lists for tuples, words for numbers as keys.
        header = Header.decode(text)
        try:
            path = self._write(header, {**files, HEADER: text})
        except OSError as error:
            self.store_error = error.strerror or str(error)
            self._warn_once(
                f"library {self.root}: cannot be written ({self.store_error}): what is built is "
                "used and not kept"
            )
            return Entry(header, dict(files), None)
        return Entry(header, dict(files), path)

    def _write(self, header: Header, files: Mapping[str, bytes]) -> Path:
        temporary = self._make_temporary()
        try:
            with open_below(self.root, (_TEMPORARY, temporary.name)) as folder:
                for name, data in files.items():
                    write_file(folder, name, data)
                os.fsync(folder)
            existing = self._model_folders(header.key)
            model = existing[0] if existing else _name_model(header)
            return self._put(temporary, (model, header.key.variant, header.key.digest))
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    def _put(self, temporary: Path, parts: tuple[str, str, str]) -> Path:
        for _ in range(_ATTEMPTS):
            with open_below(self.root, parts[:-1], create=True) as parent:
                try:
                    os.rename(temporary, parts[-1], dst_dir_fd=parent)
                    os.fsync(parent)
                    return self.root.joinpath(*parts)
                except FileNotFoundError:
                    continue  # another process pruned the empty folder between the two steps
                except OSError as error:
                    if error.errno not in _OCCUPIED:
                        raise
                if self._replace(temporary, parent, parts):
                    os.fsync(parent)
                    return self.root.joinpath(*parts)
        raise OSError(errno.EBUSY, "others keep changing the same entry")

    def _replace(self, temporary: Path, parent: int, parts: tuple[str, str, str]) -> bool:
        """Put a new entry in the place of another; False when the place has to be tried again.

        What the library wrote is removed afterwards, anything else is kept beside it.
        """
        listing = self._look(parts)
        if listing is None or listing.foreign:
            self._move_aside(listing, parts)
            return False
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            if exchange(temporary, parent, parts[-1]):
                shutil.rmtree(temporary, ignore_errors=True)
                return True
            # Where that is not possible the old entry is away for a moment.
            try:
                self._remove(parts, lambda: os.rename(temporary, parts[-1], dst_dir_fd=parent))
            except OSError as error:
                if error.errno not in _OCCUPIED:
                    raise
                return False  # another process was first
            return True
        return False

    def _move_aside(self, listing: Listing | None, parts: tuple[str, str, str]) -> None:
        path = self.root.joinpath(*parts)
        if listing is None:
            try:
                is_folder = stat.S_ISDIR(path.lstat().st_mode)
            except FileNotFoundError:
                return  # it is gone: whatever comes next is another process' new one
            if is_folder:
                return  # it was gone, and another process has put a new one there
        aside = path.with_name(f"{path.name}.aside-{secrets.token_hex(4)}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, aside)
            logger.warning("library entry %s: not of the library, moved to %s", path, aside)

    def _make_temporary(self) -> Path:
        make_root(self.root)
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        with open_below(self.root, (_TEMPORARY,), create=True) as folder:
            os.mkdir(name, 0o755, dir_fd=folder)
        return self.root / _TEMPORARY / name

    # -- look and prune ------------------------------------------------------------------------

    def entries(self) -> list[Listing]:
        """List all entries, by model, variant and digest; damaged ones too."""
        return list(self._walk())

    def size_bytes(self) -> int:
        """Bytes of all entries."""
        return sum(listing.size_bytes for listing in self._walk())

    def prune(
        self,
        *,
        find_stale: Callable[[EntryKey], str] | None = None,
        superseded: bool = False,
        kind: str = "",
        unused_days: float | None = None,
        limit_bytes: int | None = None,
        dry_run: bool = False,
    ) -> list[Removal]:
        """Remove entries; what the library did not write stays, whatever it is.

        Raises `ConfigurationError` when an entry cannot be removed.

        Parameters
        ----------
        find_stale : callable, optional
            Returns why an entry is no longer of use, or nothing; with it damaged ones are removed
            too.
        superseded : bool
            Remove those of earlier contents of a model, see `find_superseded`.
        kind : str
            Remove all of this kind.
        unused_days : float, optional
            Remove those that were not used for longer.
        limit_bytes : int, optional
            Remove those used longest ago until the rest is no larger.
        dry_run : bool
            Only return what would be removed.
        """
        now = datetime.now(timezone.utc)
        kept, removals = [], []
        listings = sorted(self._walk(), key=lambda listing: listing.used)
        earlier = find_superseded(listings) if superseded else {}
        for listing in listings:
            days = (now - listing.used).total_seconds() / 86_400
            reason = ""
            if listing.foreign:
                continue
            if find_stale is not None:
                reason = listing.problem or (
                    find_stale(listing.header.key) if listing.header else ""
                )
            reason = reason or earlier.get(listing.path, "")
            if not reason and kind and listing.header and listing.header.key.kind == kind:
                reason = f"of kind {kind}"
            if not reason and unused_days is not None and days > unused_days:
                reason = f"not used for {days:.0f} days"
            if reason:
                removals.append(Removal(listing, reason))
            else:
                kept.append(listing)
        if limit_bytes is not None:
            total = sum(listing.size_bytes for listing in kept)
            for listing in kept:
                if total <= limit_bytes:
                    break
                removals.append(
                    Removal(listing, f"the library is larger than {limit_bytes} bytes")
                )
                total -= listing.size_bytes
        if not dry_run:
            for removal in removals:
                self._remove_listed(removal.listing.path)
            self._remove_abandoned()
        return removals

    def _walk(self) -> Iterator[Listing]:
        for model in filter(_MODEL.fullmatch, self._names()):
            for variant in filter(_VARIANT.fullmatch, self._names(model)):
                for digest in self._names(model, variant):
                    listing = self._look((model, variant, digest))
                    if listing is not None:
                        yield listing

    def _look(self, parts: tuple[str, str, str]) -> Listing | None:
        """Describe a folder of an entry; None where it is not one, or is gone."""
        if not _DIGEST.fullmatch(parts[-1]):
            return None
        path = self.root.joinpath(*parts)
        try:
            for attempt in range(_ATTEMPTS):
                with open_below(self.root, parts) as folder:
                    listing = describe_entry(folder, path)
                    # What looks damaged is perhaps being removed by another process.
                    is_last = attempt == _ATTEMPTS - 1
                    if not listing.problem or is_last or not self._was_replaced(folder, parts):
                        return listing
            raise AssertionError("unreachable")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            # Its origin is unknown, so it stays.
            now = datetime.now(timezone.utc)
            return Listing(path, 0, now, None, _tell(error), foreign=True)

    def _remove_listed(self, path: Path) -> None:
        model, variant, digest = path.relative_to(self.root).parts
        try:
            self._remove((model, variant, digest))
            for folder in (path.parent, path.parent.parent):
                os.rmdir(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise ConfigurationError(f"cannot remove {path}: {error.strerror}") from error

    def _remove(
        self, parts: tuple[str, str, str], and_then: Callable[[], object] = lambda: None
    ) -> None:
        """Move an entry away in one step, then delete its files, which takes longer."""
        grave = self._make_temporary()
        try:
            try:
                with open_below(self.root, parts[:-1]) as parent:
                    os.rename(parts[-1], grave, src_dir_fd=parent)
            except FileNotFoundError:
                pass  # another process was first
            and_then()
        finally:
            shutil.rmtree(grave, ignore_errors=True)

    def _remove_abandoned(self) -> None:
        folder = self.root / _TEMPORARY
        for name in self._names(_TEMPORARY):
            with contextlib.suppress(OSError):
                if time.time() - (folder / name).lstat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(folder / name, ignore_errors=True)


def find_superseded(listings: Iterable[Listing]) -> dict[Path, str]:
    """Entries of earlier contents of a model, by their folders, with the reason.

    Those are of the same name and another hash than what was stored last: the network was exported
    anew to the same file. One that was loaded on a later day is still in use, as where two tasks
    take one file in two sizes.
    """
    by_name: dict[str, list[tuple[Listing, Header]]] = {}
    for listing in listings:
        if listing.header is not None and listing.header.model and not listing.foreign:
            by_name.setdefault(listing.header.model, []).append((listing, listing.header))
    found: dict[Path, str] = {}
    for name, entries in by_name.items():
        newest = max(entries, key=lambda entry: entry[1].created)[1]
        same = [header for _, header in entries if header.key.model_hash == newest.key.model_hash]
        first = min(header.created for header in same)
        for listing, header in entries:
            is_other = header.key.model_hash != newest.key.model_hash
            if is_other and (listing.used - first).total_seconds() < _DAY_S:
                found[listing.path] = (
                    f"of an earlier {name}: another was stored on {first:%Y-%m-%d}"
                )
    return found


def _tell(error: Exception) -> str:
    return make_printable((isinstance(error, OSError) and error.strerror) or str(error))


def _name_model(header: Header) -> str:
    """Folder of a model: its name, for people, then the start of its hash."""
    scheme, _, rest = header.model.partition(":")
    words = f"{scheme}-{rest.rstrip('/').rpartition('/')[2]}".lower()
    slug = re.sub(r"[^a-z0-9._]+", "-", words).strip("-.")[:40].strip("-.")
    start = header.key.model_hash[:12]
    return f"{slug}-{start}" if slug else start
