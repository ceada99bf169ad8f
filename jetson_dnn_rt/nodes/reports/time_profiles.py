"""Execution times of a task as profiled, out of the tables of ``jetson-dnn-rt profile``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jetson_dnn_rt.coordinator.tables.files import TableFile, load_tables
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.traces.drift import LEAST_TIMES, TimeProfile

TABLES = "tables.json"
"""The file in a folder of ``profile --output``."""


@dataclass(frozen=True)
class TimeProfiles:
    """What the times of a task are compared with.

    Attributes
    ----------
    source : str
        Path of the file; empty = there is none, the first frames are the profile.
    by_variant : mapping of str to mapping
        Profiles of each variant, by the clock configuration in words. A file that was made at one
        configuration holds for whatever the clocks are: its key is empty.
    """

    source: str = ""
    by_variant: Mapping[str, Mapping[str, TimeProfile]] = field(default_factory=dict)

    @property
    def by_clocks(self) -> bool:
        """Whether it depends on the clocks which profile holds."""
        return any(clocks for found in self.by_variant.values() for clocks in found)

    def find(self, variant: str, clocks: str) -> TimeProfile | None:
        """Profile of a variant at clocks; None where it was not profiled so."""
        profiles = self.by_variant.get(variant, {})
        return profiles.get("") or profiles.get(clocks)


def load_time_profiles(path: str, task: str) -> TimeProfiles:
    """Read the profiles of a task.

    Parameters
    ----------
    path : str
        Of the tables, or of the folder that they are in; empty = there are none.
    task : str
        Name of the task. Of a file with tables of one task only those are taken.

    Raises
    ------
    ConfigurationError
        When the file cannot be read, does not know the task, or was made with too few runs.
    """
    if not path:
        return TimeProfiles()
    file = Path(path).expanduser()
    file = file / TABLES if file.is_dir() else file
    tables = load_tables(file)
    try:
        found = _read(tables, task)
    except (KeyError, ValueError) as error:
        reason = error.args[0]
        raise ConfigurationError(f"profile {file}: {reason}") from error
    return TimeProfiles(str(file), found)


def _read(tables: TableFile, task: str) -> dict[str, dict[str, TimeProfile]]:
    table = tables.tables[0] if len(tables.tables) == 1 else tables.table(task)
    frames = table.times_ns.shape[2]
    if frames < LEAST_TIMES:
        raise ValueError(
            f"{frames} frames of {table.task} have no p99: profile with --runs {LEAST_TIMES} or "
            "more"
        )
    several = len(tables.clocks) > 1
    found: dict[str, dict[str, TimeProfile]] = {}
    for v, variant in enumerate(table.variants):
        profiles = found.setdefault(variant, {})
        for position in range(len(tables.clocks)):
            # [K, S] by [K]: what each frame takes at these clocks, all stages together.
            times_ns = table.slowdown[v, :, position] @ table.times_ns[v]
            clocks = tables.clocks.describe(position) if several else ""
            profiles[clocks] = TimeProfile.of(np.ceil(times_ns).astype(np.int64).tolist())
    return found
