# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Parameters of a process: real-time set-up, executor, trace."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial

from jetson_dnn_rt.config.declaration import fixed_parameter, parameter
from jetson_dnn_rt.errors import ConfigurationError

DISCIPLINES = ("edf", "fifo", "priority")

TRACE_LIMIT_MB, MAX_TRACE_LIMIT_MB = 2048, 1_000_000
"""Disk space of a trace: by default four days of two tasks at 30 Hz, as Parquet; at most."""

AUTOSTART = (False, "Configure and activate by itself when the process starts")

_realtime = partial(parameter, group="realtime")


@dataclass(frozen=True)
class CommonConfig:
    """Parameters of every node of the package."""

    lock_configuration: bool = fixed_parameter(
        False,
        "Refuse changes of all parameters that are not dynamic, and cleaning up and configuring "
        "again, from the start of the node on: for networks where not everybody is trusted",
    )


@dataclass(frozen=True)
class RealtimeConfig:
    """Real-time set-up of a process and its threads."""

    sched_fifo: bool = _realtime(False, "Run the workers under SCHED_FIFO (needs rights)")
    priority: int = _realtime(
        50,
        "SCHED_FIFO priority of the workers; threads that deliver frames get one more",
        limits=(1, 98),
    )
    cpu_affinity: tuple[int, ...] = _realtime((), "Cores of the workers; [-1] = all")
    mlockall: bool = _realtime(False, "Lock the process's memory (needs rights)")
    gc_freeze: bool = _realtime(True, "Exempt what is alive after warm-up from garbage collection")
    mallopt: bool = _realtime(
        True, "Keep glibc from returning memory to the system after every image"
    )
    # Python's own 5000 lets a camera thread wait 5 ms. Release to start of a 5 ms job, median /
    # p99: 0.60 / 1.0 ms at 500, 0.16 / 0.42 at 100.
    switch_interval_us: int = _realtime(
        100,
        "Longest time a thread keeps Python's interpreter lock; 0 = Python's own 5000",
        unit="us",
        limits=(0, 100_000),
    )

    def __post_init__(self) -> None:
        if not 1 <= self.priority <= 98:
            raise ConfigurationError(f"priority must be in 1..98: {self.priority}")
        if self.switch_interval_us < 0:
            raise ConfigurationError(f"switch_interval_us must be >= 0: {self.switch_interval_us}")
        unknown = set(self.cpu_affinity) - set(range(os.cpu_count() or 1))
        if unknown:
            raise ConfigurationError(
                f"cpu_affinity names cores that do not exist: {sorted(unknown)}",
                "realtime.cpu_affinity",
            )


@dataclass(frozen=True)
class ProcessConfig(RealtimeConfig):
    """The executor of a process, its trace and its real-time set-up."""

    workers: int = parameter(
        1, "Worker threads: stages of different tasks that run side by side", limits=(1, 64)
    )
    helpers: int = parameter(
        1,
        "Threads more that prepare and decode frames while networks run on a device of their own, "
        "such as a GPU; 0 = none",
        limits=(0, 64),
    )
    discipline: str = parameter(
        "edf",
        "Order of ready stages: earliest deadline first, first come, or the tasks' priorities",
        choices=DISCIPLINES,
    )
    max_inflight: str = parameter(
        "", "Stages at once on a device, such as cuda=2 or cuda=2, dla0=1; empty = no limit"
    )
    cancel_for_urgent: bool = parameter(
        False,
        "End a running stage for a more urgent frame that would be late behind it, and run it "
        "again afterwards, where both make their deadlines so; one worker, back ends that can "
        "cancel, no coordinator",
    )
    on_unschedulable: str = parameter(
        "warn",
        "When the analysis says that deadlines cannot be kept: go on, or stay inactive",
        choices=("warn", "refuse"),
    )
    trace_dir: str = parameter(
        "", "Folder below which every job is traced, for report and wcet; empty = no trace"
    )
    trace_limit_mb: int = parameter(
        TRACE_LIMIT_MB,
        "Disk space of the traces of a process run; at the limit the oldest parts make room for "
        "new ones; 0 = no limit",
        unit="MB",
        limits=(0, MAX_TRACE_LIMIT_MB),
    )
    autostart: bool = fixed_parameter(*AUTOSTART)

    @property
    def device_limits(self) -> dict[str, int]:
        """How many stages may run at once on a device: ``cuda=2, dla0=1`` as a dict.

        Raises
        ------
        ConfigurationError
            When `max_inflight` is not of that form, a number is below 1, or a device comes twice.
        """
        limits: dict[str, int] = {}
        for item in filter(None, map(str.strip, self.max_inflight.split(","))):
            device, _, number = (part.strip() for part in item.partition("="))
            if not device or not number.isdecimal() or int(number) < 1 or device in limits:
                raise ConfigurationError(
                    f"max_inflight must be DEVICE=NUMBER, separated by commas, each device once "
                    f"and each number >= 1, such as cuda=2: {self.max_inflight!r}",
                    "max_inflight",
                )
            limits[device] = int(number)
        return limits
