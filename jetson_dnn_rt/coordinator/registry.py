"""The policies there are, by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from jetson_dnn_rt.coordinator.policy import Policy, PolicySettings
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.errors import ConfigurationError

POLICIES = {
    "static": "static:Static",
    "max_n": "static:MaxN",
    "max_q": "static:MaxQ",
    "race_to_idle": "static:RaceToIdle",
    "predjoule": "predjoule:PredJoule",
    "poet": "poet:Poet",
    "apnet": "apnet:ApNet",
    "alert": "alert:Alert",
    "neuos_min_energy": "neuos:NeuOSMinEnergy",
    "neuos_max_accuracy": "neuos:NeuOSMaxAccuracy",
    "neuos_balanced": "neuos:NeuOSBalanced",
    "horizon": "horizon.policy:Horizon",
}
"""Module in `jetson_dnn_rt.coordinator.policies`, imported on use, and class."""


def create_policy(
    name: str,
    clock_table: ClockTable,
    tables: Sequence[TaskTable],
    settings: PolicySettings,
    *,
    workers: int,
    interference: Sequence[float],
) -> Policy:
    """Make a policy by its name; ConfigurationError when there is none of that name."""
    module, _, cls = find_policy(name).partition(":")
    made: Policy = getattr(
        importlib.import_module(f"jetson_dnn_rt.coordinator.policies.{module}"), cls
    )(clock_table, tables, settings, workers=workers, interference=interference)
    return made


def find_policy(name: str) -> str:
    """Return the entry of a policy; ConfigurationError with all names when there is none."""
    if name not in POLICIES:
        raise ConfigurationError(f"policy must be one of {', '.join(POLICIES)}: {name!r}")
    return POLICIES[name]
