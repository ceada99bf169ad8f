"""Profile tables as a file: JSON, versioned, checked whole before anything is used.

The format is in docs/tables.md. Files are not trusted: sizes are checked before memory is taken,
and an error names the file, the place in it and the fix.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Floats, Integers, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption, ClockSpace
from jetson_dnn_rt.safety import small_files

FORMAT, VERSION = "jetson_dnn_rt-tables", 1
MAX_BYTES = 32 << 20  # 1000 frames of ten stages in four variants are 0.4 MB
MAX_ITEMS = 1 << 20  # longest list in the file
MAX_CONFIGURATIONS = 1 << 20  # most configurations of a board; every one of them costs memory


@dataclass(frozen=True, eq=False)
class TableFile:
    """Contents of a file of tables."""

    clocks: ClockTable  # the configurations that the tables are about
    tables: tuple[TaskTable, ...]  # one a task
    interference: tuple[float, ...] = (1.0,)
    """``[n - 1]``: slow-down of a stage when n run side by side; first 1."""
    power_measured: bool = False
    """Whether watts are watts; else 1 stands for a busy machine and 0 for an idle one."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """For people: machine, date, frames, agreement, errors of models."""

    def table(self, task: str) -> TaskTable:
        """The table of a task; KeyError with the names there are."""
        for table in self.tables:
            if table.task == task:
                return table
        raise KeyError(f"there is no table of {task!r}, but of {[t.task for t in self.tables]}")


def save_tables(path: Path, file: TableFile) -> None:
    """Write a file in one step: readers find the old one or the new one, whole.

    ConfigurationError when it cannot be written there, or could not be read again.
    """
    try:
        text = json.dumps(_to_json(file), allow_nan=False, separators=(",", ":")) + "\n"
        # What could not be read again is not worth an hour of measuring.
        _read_file(_Value(json.loads(text), path))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"tables {path} cannot be written: {error}") from error
    if len(text) > MAX_BYTES:
        raise ConfigurationError(
            f"tables {path} would be {len(text) / 1e6:.0f} MB, at most {MAX_BYTES >> 20} MiB are "
            "read: profile with fewer --runs"
        )
    try:
        _write(path, text)
    except OSError as error:
        raise ConfigurationError(f"tables {path} cannot be written: {error.strerror}") from error


def load_tables(path: Path) -> TableFile:
    """Read and check a file; ConfigurationError, with the place, when it is not as written."""
    try:
        data = small_files.read_bytes(path, MAX_BYTES)
    except OSError as error:
        raise ConfigurationError(
            f"tables {path}: {error.strerror}; make them with jetson-dnn-rt profile"
        ) from error
    try:
        value = json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_make_object)
    except (ValueError, RecursionError) as error:
        _Value(None, path).refuse(f"is no JSON: {error}")
    return _read_file(_Value(value, path))


def _write(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)  # not 0600, which is for secrets
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


# -- to JSON -----------------------------------------------------------------------------------


def _to_json(file: TableFile) -> dict[str, Any]:
    clocks = file.clocks
    domains = [
        {
            "name": domain.name,
            "delay_ns": domain.delay_ns,
            "options": [[o.frequency_hz, o.cores, o.mask] for o in domain.options],
        }
        for domain in clocks.space.domains
    ]
    names = {field.name for field in fields(TaskTable)}  # others are cached figures
    return {
        "format": FORMAT,
        "version": VERSION,
        "notes": dict(file.notes),
        "clocks": {
            "domains": domains,
            "indices": clocks.indices.tolist(),
            "idle_w": clocks.idle_w.tolist(),
            "max_n": clocks.max_n,
            "max_q": clocks.max_q,
        },
        "power_measured": file.power_measured,
        "interference": list(file.interference),
        "tasks": [
            {
                key: value.tolist() if isinstance(value, np.ndarray) else value
                for key, value in vars(table).items()
                if key in names
            }
            for table in file.tables
        ],
    }


# -- from JSON ---------------------------------------------------------------------------------


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is there twice")
    return made


@dataclass(frozen=True)
class _Value:
    """A value in the file, and where it is."""

    value: Any
    path: Path
    place: str = ""

    def refuse(self, text: str) -> NoReturn:
        place = f": {self.place}" if self.place else ""
        raise ConfigurationError(
            f"tables {self.path}{place} {text}; make them again with jetson-dnn-rt profile "
            "--output, or correct the file (docs/tables.md)"
        )

    def fields(self, *names: str) -> dict[str, _Value]:
        """The fields of an object that has these and no others."""
        if not isinstance(self.value, dict):
            self.refuse("must be an object")
        for name in names:
            if name not in self.value:
                self.refuse(f"lacks {name!r}")
        unknown = sorted(set(self.value) - set(names))
        if unknown:
            self.refuse(f"has {unknown[0]!r}, which is none of {', '.join(names)}")
        start = f"{self.place}." if self.place else ""
        return {name: _Value(self.value[name], self.path, start + name) for name in names}

    def items(self, least: int = 1) -> list[_Value]:
        if not isinstance(self.value, list) or not least <= len(self.value) <= MAX_ITEMS:
            self.refuse(f"must be a list of {least} to {MAX_ITEMS} items")
        return [_Value(v, self.path, f"{self.place}[{i}]") for i, v in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            self.refuse("must be text")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """Different ones."""
        texts = tuple(item.text() for item in self.items())
        if len(set(texts)) != len(texts):
            self.refuse(f"has a name twice: {list(texts)}")
        return texts

    def whole(self, least: int = 0, most: int = (1 << 63) - 1) -> int:
        if type(self.value) is not int or not least <= self.value <= most:
            self.refuse(f"must be a whole number in [{least}, {most}]")
        return self.value

    def floats(self, shape: tuple[int, ...], least: float) -> Floats:
        """Numbers in lists of this shape; -1 = as many as there are."""
        flat = self._flatten(shape, (int, float))
        # Compared before they become floats: a whole number may be too large for one.
        if not all(least <= number <= 1e300 for number in flat):
            self.refuse(f"must hold numbers >= {least:g}")
        return np.array(flat, np.float64).reshape(shape)

    def integers(self, shape: tuple[int, ...], least: int) -> Integers:
        flat = self._flatten(shape, (int,))
        if any(not least <= number < 1 << 62 for number in flat):
            self.refuse(f"must hold whole numbers >= {least}")
        return np.array(flat, np.int64).reshape(shape)

    def _flatten(self, shape: tuple[int, ...], kinds: tuple[type, ...]) -> list[Any]:
        """All numbers; lists of another length or numbers of another kind are refused."""
        wanted = ", ".join("any" if length < 0 else str(length) for length in shape)
        level = [self.value]
        for axis, length in enumerate(shape):
            inner: list[Any] = []
            for part in level:
                if not isinstance(part, list) or len(part) > MAX_ITEMS or not part:
                    self.refuse(f"must be lists of the shape [{wanted}]")
                if length < 0:
                    length = len(part)
                if len(part) != length:
                    self.refuse(f"must be lists of the shape [{wanted}]: axis {axis}")
                inner += part
            level = inner
        if any(type(number) not in kinds for number in level):
            self.refuse("must hold numbers only" if float in kinds else "must hold whole numbers")
        return level


def _read_file(root: _Value) -> TableFile:
    if not isinstance(root.value, dict) or root.value.get("format") != FORMAT:
        root.refuse(f"is no file of tables: its 'format' must be {FORMAT!r}")
    if root.value.get("version") != VERSION:
        root.refuse(
            f"has version {root.value.get('version')!r}, this release reads version {VERSION}"
        )
    parts = root.fields(
        "format", "version", "notes", "clocks", "power_measured", "interference", "tasks"
    )
    if not isinstance(parts["notes"].value, dict):
        parts["notes"].refuse("must be an object")
    clocks = _read_clocks(parts["clocks"])
    tables = tuple(_read_task(item, len(clocks)) for item in parts["tasks"].items())
    if len({table.task for table in tables}) != len(tables):
        parts["tasks"].refuse("has a task twice")
    interference = tuple(parts["interference"].floats((-1,), 1.0).tolist())
    measured = parts["power_measured"]
    if not isinstance(measured.value, bool):
        measured.refuse("must be true or false")
    return TableFile(clocks, tables, interference, measured.value, parts["notes"].value)


def _read_clocks(value: _Value) -> ClockTable:
    parts = value.fields("domains", "indices", "idle_w", "max_n", "max_q")
    domains = []
    count = 1
    for item in parts["domains"].items(least=0):
        field_of = item.fields("name", "delay_ns", "options")
        options = []
        for option in field_of["options"].items():
            numbers = option.integers((3,), 0).tolist()
            with _refusing(option):
                options.append(ClockOption(*numbers))
        count *= len(options)
        if count > MAX_CONFIGURATIONS:
            parts["domains"].refuse(f"has more than {MAX_CONFIGURATIONS} configurations")
        with _refusing(item):
            domains.append(
                ClockDomain(field_of["name"].text(), tuple(options), field_of["delay_ns"].whole())
            )
    with _refusing(parts["domains"]):
        space = ClockSpace(domains)
    indices = parts["indices"].integers((-1,), 0)
    if indices.max() >= len(space) or len(set(indices.tolist())) != len(indices):
        parts["indices"].refuse(f"must hold different numbers below {len(space)}")
    idle_w = parts["idle_w"].floats((len(indices),), 0.0)
    last = len(indices) - 1
    return ClockTable(
        space, indices, idle_w, parts["max_n"].whole(0, last), parts["max_q"].whole(0, last)
    )


def _read_task(value: _Value, clocks: int) -> TaskTable:
    names = ("task", "stages", "variants", "deadline_ns", "period_ns")
    parts = value.fields(*names, "times_ns", "slowdown", "power_w", "loss")
    stages, variants = parts["stages"].texts(), parts["variants"].texts()
    shape = (len(variants), len(stages))
    with _refusing(value):
        return TaskTable(
            parts["task"].text(),
            stages,
            variants,
            parts["deadline_ns"].whole(1),
            parts["period_ns"].whole(1),
            parts["times_ns"].integers((*shape, -1), 1),
            parts["slowdown"].floats((*shape, clocks), 1e-9),
            parts["power_w"].floats((*shape, clocks), 0.0),
            parts["loss"].floats(shape, 0.0),
        )


@contextlib.contextmanager
def _refusing(value: _Value) -> Iterator[None]:
    """Say where it was that a class refused its arguments."""
    try:
        yield
    except ValueError as error:
        value.refuse(f"cannot be used: {error}")
