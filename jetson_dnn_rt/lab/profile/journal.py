"""What a long measurement has done so far, in a file that a crash leaves readable.

One line of JSON per finished piece of work, on the disk before the next piece begins. Whoever
starts the same measurement again finds those pieces and goes on behind them; a line that a crash
cut short is dropped, and its piece is measured again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from jetson_dnn_rt.errors import ConfigurationError

FORMAT, VERSION = "jetson_dnn_rt-profile-journal", 1


class Journal:
    """Finished pieces of a measurement by their names, in memory only.

    Attributes
    ----------
    resumed : int
        Pieces that were there from an earlier start.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, Any] = {}
        self.resumed = 0

    def get(self, name: str) -> Any:
        """What a piece gave, as JSON has it; None when it is still to be done."""
        return self._pieces.get(name)

    def put(self, name: str, value: Any) -> None:
        """Keep what a piece gave: anything that JSON can hold, and not None."""
        self._pieces[name] = value

    def items(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Names and values of pieces, in the order in which they were done."""
        return ((name, v) for name, v in self._pieces.items() if name.startswith(prefix))

    def close(self) -> None:
        """Give the file back; a second call does nothing."""

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class FileJournal(Journal):
    """A journal that outlives the process.

    Parameters
    ----------
    path : Path
        Of the file; made when it is not there, continued when it is.
    settings : mapping
        Everything that the pieces depend on, as JSON can hold it: pieces of other settings must
        not be mixed with these.

    Raises
    ------
    ConfigurationError
        When the file is of other settings, with the difference; when it is no journal, is of
        another version, or cannot be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.path = path
        head = {"format": FORMAT, "version": VERSION, "settings": settings}
        try:
            self._file: BinaryIO = path.open("a+b")
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
        try:
            self._load(head)
        except BaseException:
            self._file.close()
            raise

    def put(self, name: str, value: Any) -> None:
        """Keep a piece; it is on the disk when this returns."""
        super().put(name, value)
        self._append({"piece": name, "value": value})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _load(self, head: Mapping[str, Any]) -> None:
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file):
            if not line.endswith(b"\n"):  # cut short by a crash
                break
            try:
                fields = json.loads(line)
                if number == 0:
                    self._check(fields, json.loads(json.dumps(head)))
                else:
                    self._pieces[fields["piece"]] = fields["value"]
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigurationError(
                    f"{self.path} line {number + 1} is no journal of a profile ({error!r}): "
                    "remove it, or choose another folder"
                ) from error
            whole += len(line)
        self._file.seek(whole)
        self._file.truncate()
        self.resumed = len(self._pieces)
        if not whole:
            self._append(head)

    def _check(self, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        if found["format"] != FORMAT or found["version"] != VERSION:
            raise ValueError(f"{found['format']} {found['version']}")
        changes = list(_list_changes(found["settings"], wanted["settings"]))
        if changes:
            raise ConfigurationError(
                f"{self.path.parent} holds a profile that was begun otherwise and cannot be "
                f"continued: {'; '.join(changes)}. Choose another folder, or remove {self.path}"
            )


def read_settings(path: Path) -> Mapping[str, Any] | None:
    """Settings that a journal was begun with; None when there is none, or nobody could tell."""
    try:
        with path.open("rb") as file:
            settings = json.loads(file.readline())["settings"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return settings if isinstance(settings, dict) else None


def _list_changes(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """``runs was 100, is 200`` for everything that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            name = f"{path}.{key}" if path else str(key)
            yield from _list_changes(before.get(key), after.get(key), name)
    elif before != after:
        yield f"{path} was {json.dumps(before)}, is {json.dumps(after)}"
