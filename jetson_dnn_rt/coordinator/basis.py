# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Inputs of a coordinator: platform, clocks and the tables of the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.clock_thread import nearest_position
from jetson_dnn_rt.coordinator.tables.files import TableFile, load_tables
from jetson_dnn_rt.coordinator.tables.hull import reduce_clocks
from jetson_dnn_rt.coordinator.tables.library_tables import leave_out_inaccurate, make_clock_table
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.platform import Platform

ALONE = (1.0,)
"""Slow-down of concurrent stages if not measured: the coordinator learns it as it runs."""


@dataclass(frozen=True, eq=False)
class Basis:
    """Inputs that stay the same while the coordinator is configured."""

    platform: Platform  # opened; the receiver of the basis closes it
    clock_table: ClockTable  # the configurations to choose from; one where clocks are fixed
    tables: Mapping[str, TaskTable]  # from the files, by task
    interference: tuple[float, ...]  # slow-down of a stage with 1, 2, ... of them concurrent
    power_measured: bool  # whether the tables have real watts; else energy is busy seconds
    notes: tuple[str, ...]  # messages for the user


def load_basis(values: CoordinatorConfig) -> Basis:
    """Open the platform and read the files.

    `ConfigurationError` when a file cannot be read or used, or two of them do not match.
    """
    files = [load_tables(Path(path)) for path in values.tables]
    files = [
        replace(
            file,
            tables=tuple(
                leave_out_inaccurate(table, values.least_agreement) for table in file.tables
            ),
        )
        for file in files
    ]
    platform = detect(allow_writes=values.allow_clock_writes, switch_cores=False)
    try:
        notes = []
        if values.allow_clock_writes and not platform.writable:
            notes.append(f"the clocks stay as they are: {platform.reason}")
        if not files:
            if platform.writable:
                notes.append(
                    "the clocks stay as they are: what they do to the tasks is in no table; "
                    "run jetson-dnn-rt profile and name its file in `tables`"
                )
            clocks = make_clock_table(platform.space, platform.read())
            return Basis(platform, clocks, {}, ALONE, False, tuple(notes))
        clocks, tables = _join(files, values.tables)
        clocks, tables, note = _fit(clocks, tables, platform)
        if note:
            notes.append(note)
        return Basis(
            platform,
            clocks,
            {table.task: table for table in tables},
            max((file.interference for file in files), key=len),
            all(file.power_measured for file in files),
            tuple(notes),
        )
    except BaseException:
        platform.close()
        raise


def _join(files: list[TableFile], paths: tuple[str, ...]) -> tuple[ClockTable, list[TaskTable]]:
    """Tables of several files, which must have the same clocks."""
    clocks = files[0].clocks
    tables: dict[str, TaskTable] = {}
    for file, path in zip(files, paths, strict=True):
        same = file.clocks.space == clocks.space
        if not same or file.clocks.indices.tolist() != clocks.indices.tolist():
            raise ConfigurationError(f"tables: {path} has other clocks than {paths[0]}")
        for table in file.tables:
            if table.task in tables:
                raise ConfigurationError(f"tables: task {table.task} is in two files ({path})")
            tables[table.task] = table
    return clocks, list(tables.values())


def _fit(
    clocks: ClockTable, tables: list[TaskTable], platform: Platform
) -> tuple[ClockTable, list[TaskTable], str]:
    """Restrict the tables to clocks that this machine can reach; adds a note."""
    known = clocks.space == platform.space
    if known and platform.writable:
        reduced, kept = reduce_clocks(clocks, tables)
        return reduced, list(kept), ""
    note = ""
    position = clocks.fastest
    if known:
        position = nearest_position(clocks, platform)
    elif len(clocks) > 1:
        note = (
            f"tables: their clocks are those of another machine than {platform.title}; times are "
            f"taken as they are at {clocks.describe(position)}"
        )
    fixed = clocks.take([position], keep_presets=False)
    return fixed, [table.take_clocks([position]) for table in tables], note
