# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How the tasks of a recorded run shared the cores, from the metadata of its trace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from jetson_dnn_rt.config.nodes import PERCEPTION
from jetson_dnn_rt.safety.records import Rule, read_record, within
from jetson_dnn_rt.traces.schema import NARROW_SLOWDOWNS, SHARING, TraceMetadata

Slowdown = Annotated[float, Rule("positive and finite", lambda x: 0.0 < x < math.inf)]
MOST_THREADS = 1 << 16


@dataclass(frozen=True)
class Sharing:
    """What a trace tells about how tasks shared the cores: see `scheduling.places`."""

    workers: Annotated[int, within(1, MOST_THREADS)] = 1
    helpers: Annotated[int, within(0, MOST_THREADS)] | None = None
    """None where the trace does not tell."""
    threads: Any = None
    """`threads` of the process, a number or ``auto``."""
    narrow_slowdowns: Mapping[str, tuple[Slowdown, ...]] | None = None
    """By task how many times as long its network took narrow before the run: none of a task that
    does not run narrow; None where it was not measured."""

    @classmethod
    def of(cls, metadata: TraceMetadata) -> Sharing:
        """Read it from the metadata; ValueError, naming the key, for a value of no use."""
        parameters = metadata.parameters
        if SHARING in parameters:
            return read_record(cls, parameters[SHARING], SHARING)
        # Earlier traces have it among the tasks, or only what was configured for the process.
        process = parameters.get(PERCEPTION, {})
        if not isinstance(process, Mapping):
            raise ValueError(f"{PERCEPTION} must hold names with values")
        given = {"threads": process.get("threads")}
        for name in ("workers", "helpers", NARROW_SLOWDOWNS):
            for values in (process, parameters):
                if name in values:
                    given[name] = values[name]
        return read_record(cls, given)
