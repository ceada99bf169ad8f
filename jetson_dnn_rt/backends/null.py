# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The null back end: takes as long as a script says and returns zeros."""

from __future__ import annotations

import itertools
import zlib

import numpy as np

from jetson_dnn_rt import __version__
from jetson_dnn_rt.backends.base import Array, BackendInfo, Runner
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.models.sources.null import NullOrigin

_BURNT = bytes(16384)
"""Its checksum takes about 10 us, during which the interpreter's lock is released."""


def inspect(name: str) -> BackendInfo:
    """Describe the back end, which is always available."""
    return BackendInfo(name, __version__, True, ("fp32",))


def create(part: Part, name: str, precision: str, threads: int, clock: Clock) -> Runner:
    """See `NullRunner`."""
    return NullRunner(part, clock, threads)


class NullRunner(Runner):
    """Waits on a clock instead of computing; on a virtual one no real time passes.

    A script that spins needs a clock that advances by itself.
    """

    backend = "null"
    version = __version__
    precision = "fp32"

    def __init__(self, part: Part, clock: Clock, threads: int = 1) -> None:
        origin = getattr(part, "origin", None)
        if not isinstance(origin, NullOrigin):
            raise BackendUnavailableError(
                f"the null back end runs null: models only, not {part.name}"
            )
        super().__init__(part)
        script = origin.script
        self._clock = clock
        self._spin = script.spin
        self._times = {stage: itertools.cycle(times) for stage, times in script.times_ns.items()}
        with_threads = f"inference@{threads}"
        self._stage = with_threads if with_threads in self._times else "inference"
        self._outputs = origin.probe(np.zeros(part.input_shapes[0], np.float32))

    def take_time(self, stage: str) -> None:
        """Wait for the scripted time of the next run of `stage`; without an entry, not at all."""
        if stage not in self._times:
            return
        end_ns = self._clock.now_ns() + next(self._times[stage])
        if not self._spin:
            self._clock.sleep_until_ns(end_ns)
            return
        while self._clock.now_ns() < end_ns:
            # Like a network, without the interpreter's lock, so that other threads run.
            zlib.crc32(_BURNT)

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        self.take_time(self._stage)
        return self._outputs

    def _close(self) -> None:
        self._outputs = ()
