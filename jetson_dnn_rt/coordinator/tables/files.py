# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Profile tables as a file: versioned JSON, checked completely before anything is used.

The format is in docs/tables.md. Files are not trusted: sizes are checked before memory is
allocated, and an error names the file, the place in it and the fix.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Floats, Integers, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption, ClockSpace
from jetson_dnn_rt.safety import small_files
from jetson_dnn_rt.safety import yaml_files as safe_yaml
from jetson_dnn_rt.safety.records import Count, read_record

FORMAT, VERSION = "jetson_dnn_rt-tables", 1
MAX_BYTES = 32 << 20  # 1000 frames of ten stages in four variants are 0.4 MB
MAX_CONFIGURATIONS = 1 << 20  # most configurations of a board; every one of them costs memory


@dataclass(frozen=True, eq=False)
class TableFile:
    """Contents of a file of tables."""

    clocks: ClockTable  # clock configurations of the tables
    tables: tuple[TaskTable, ...]  # one per task
    interference: tuple[float, ...] = (1.0,)
    """``[n - 1]``: slow-down of a stage when n run concurrently; the first is 1."""
    power_measured: bool = False
    """Whether power is in watts; else 1 stands for a busy machine and 0 for an idle one."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Information for readers: machine, date, frames, agreement, errors of models."""

    def __post_init__(self) -> None:
        if not self.tables or len({table.task for table in self.tables}) != len(self.tables):
            raise ValueError("tasks must be at least one, each of them once")
        for table in self.tables:
            if table.slowdown.shape[2] != len(self.clocks):
                raise ValueError(
                    f"slowdown of task {table.task!r} must be of {len(self.clocks)} clocks"
                )
        if not self.interference or not all(1.0 <= n <= 1e300 for n in self.interference):
            raise ValueError(f"interference must hold numbers >= 1: {self.interference}")

    def table(self, task: str) -> TaskTable:
        """The table of a task; KeyError with the known names."""
        for table in self.tables:
            if table.task == task:
                return table
        raise KeyError(f"there is no table of {task!r}, but of {[t.task for t in self.tables]}")


def save_tables(path: Path, file: TableFile) -> None:
    """Write a file atomically: readers find the complete old or new one.

    ConfigurationError when it cannot be written, or could not be read back.
    """
    try:
        text = json.dumps(_to_json(file), allow_nan=False, separators=(",", ":")) + "\n"
        # A file that cannot be read back would waste an hour of measuring.
        _read_file(json.loads(text), path)
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
    """Read and check a file; ConfigurationError, with the place, when it is invalid."""
    try:
        data = small_files.read_bytes(path, MAX_BYTES)
    except OSError as error:
        raise ConfigurationError(
            f"tables {path}: {error.strerror}; make them with jetson-dnn-rt profile"
        ) from error
    try:
        value = json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_make_object)
    except (ValueError, RecursionError) as error:
        raise _refuse(f"{path}: is no JSON: {error}") from error
    return _read_file(value, path)


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


@dataclass
class _Domain:
    name: str
    delay_ns: Count
    options: tuple[tuple[Count, Count, Count], ...]  # clock in Hz, cores, mask


@dataclass
class _Clocks:
    domains: tuple[_Domain, ...]
    indices: Integers
    idle_w: Floats
    max_n: int
    max_q: int

    def __post_init__(self) -> None:
        if prod(len(domain.options) for domain in self.domains) > MAX_CONFIGURATIONS:
            raise ValueError(f"domains have more than {MAX_CONFIGURATIONS} configurations")
        domains = [
            ClockDomain(d.name, tuple(ClockOption(*option) for option in d.options), d.delay_ns)
            for d in self.domains
        ]
        self.table = ClockTable(
            ClockSpace(domains), self.indices, self.idle_w, self.max_n, self.max_q
        )


@dataclass
class _Contents:
    format: str
    version: int
    notes: dict[str, Any]
    clocks: _Clocks
    power_measured: bool
    interference: tuple[float, ...]
    tasks: tuple[TaskTable, ...]


def _read_file(value: Any, path: Path) -> TableFile:
    try:
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ValueError(f"is no file of tables: its 'format' must be {FORMAT!r}")
        if value.get("version") != VERSION:
            raise ValueError(
                f"has version {safe_yaml.describe(value.get('version'))}, this release reads "
                f"version {VERSION}"
            )
        read = read_record(_Contents, value)
        return TableFile(
            read.clocks.table, read.tasks, read.interference, read.power_measured, read.notes
        )
    except ValueError as error:
        raise _refuse(f"{path}: {error}") from error


def _refuse(what: object) -> ConfigurationError:
    return ConfigurationError(
        f"tables {what}; make them again with jetson-dnn-rt profile --output, or correct the file "
        "(docs/tables.md)"
    )
