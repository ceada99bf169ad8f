"""What the coordinator node knows before it decides: platform, clocks and the tasks' tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.coordinator.tables.files import TableFile, load_tables
from jetson_dnn_rt.coordinator.tables.hull import reduce_clocks
from jetson_dnn_rt.coordinator.tables.library_tables import (
    load_profiles,
    make_clock_table,
    make_task_table,
)
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.platform import Platform

if TYPE_CHECKING:
    from jetson_dnn_rt.config.nodes import CoordinatorConfig
    from jetson_dnn_rt.nodes.tasks.task_node import TaskNode

ALONE = (1.0,)
"""How much slower stages are side by side, where nobody measured it: the coordinator then learns
it as it runs."""


@dataclass(frozen=True, eq=False)
class Basis:
    """What stays the same while the node is configured.

    Attributes
    ----------
    platform : Platform
        Opened; whoever gets the basis closes it.
    clock_table : ClockTable
        The configurations to choose from; one where the clocks cannot be changed.
    tables : mapping of str to TaskTable
        By task, what the files say.
    interference : tuple of float
        How much slower a stage is with 1, 2, ... of them side by side.
    power_measured : bool
        Whether the watts in the tables are watts; else energy stands for busy seconds.
    notes : tuple of str
        What a user should know.
    """

    platform: Platform
    clock_table: ClockTable
    tables: Mapping[str, TaskTable]
    interference: tuple[float, ...]
    power_measured: bool
    notes: tuple[str, ...]


def load_basis(values: CoordinatorConfig) -> Basis:
    """Open the platform and read the files.

    Raises
    ------
    ConfigurationError
        When a file cannot be read or used, or two of them do not fit together.
    """
    files = [load_tables(Path(path)) for path in values.tables]
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
            return Basis(
                platform, make_clock_table(platform.space, platform.read()), {}, ALONE,
                False, tuple(notes),
            )  # fmt: skip
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
    """The tables of several files, which must have been made at the same clocks."""
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
    """The part of the tables that this machine's clocks can reach; with a note."""
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


def nearest_position(clocks: ClockTable, platform: Platform) -> int:
    """Position in the table of the platform's present clocks, or of the nearest there."""
    if len(clocks) == 1:
        return 0
    space = clocks.space
    digits = space.digits(space.nearest(platform.read()))
    distances = [
        sum(abs(a - b) for a, b in zip(space.digits(int(index)), digits, strict=True))
        for index in clocks.indices
    ]
    return distances.index(min(distances))


def table_of_task(node: TaskNode, given: TaskTable | None) -> TaskTable | str:
    """Table of a task that runs in this process, or why there is none.

    Parameters
    ----------
    node : TaskNode
        Configured.
    given : TaskTable, optional
        What a file says of it; else its warm-up and the library are asked.
    """
    loaded = node.loaded
    assert loaded is not None
    period_ns = int(1e9 / node.frequency_hz)
    if given is not None:
        if given.stages != loaded.stage_names:
            return (
                f"its table is of the stages {', '.join(given.stages)}, the task has "
                f"{', '.join(loaded.stage_names)}: profile it with the same `stages`"
            )
        return replace(given, deadline_ns=node.deadline_ns, period_ns=period_ns)
    try:
        profiles = load_profiles(
            loaded.stages,
            loaded.warm_up_times_ns,
            library=loaded.library,
            model=loaded.model,
            threads=loaded.threads,
            stages=node.parameters.stages,
        )
        return make_task_table(
            node.task,
            loaded.stage_names,
            profiles,
            deadline_ns=node.deadline_ns,
            period_ns=period_ns,
        )
    except (ConfigurationError, ValueError) as error:
        return str(error)
