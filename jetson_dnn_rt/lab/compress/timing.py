# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Times of full and decomposed layers and networks, run in turn on a back end.

A decomposed layer stays only if it is faster: fewer operations often gain no time.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.variants.progress import Progress, ignore_progress

if TYPE_CHECKING:
    import torch

    from jetson_dnn_rt.lab.compress.decomposition import KeepIf

Inputs = Sequence[npt.NDArray[np.float32]]

_WARM_UP = 3
_LEAST, _MOST = 15, 200  # runs of each layer
_BUDGET_NS = 150_000_000  # for the runs of both
_GAIN = 0.03  # a smaller gain is within the difference of medians of two equal layers


@contextmanager
def open_pair(make_runner: Callable[[int], Runner]) -> Iterator[tuple[Runner, Runner]]:
    """Make two runners, and close them in the end."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(make_runner(index))) for index in (0, 1))
        yield first, second


def time_in_turn(
    runners: tuple[Runner, Runner],
    inputs: Inputs,
    *,
    runs: tuple[int, int],
    budget_ns: int,
    progress: Progress = ignore_progress,
) -> tuple[list[int], list[int]]:
    """Time two runners in turn on the same inputs, after a warm-up; in ns.

    At least ``runs[0]`` of each, and then until the budget or ``runs[1]`` is reached.
    """
    times: tuple[list[int], list[int]] = ([], [])
    buffers = [runner.allocate_input() for runner in runners]
    was_enabled = gc.isenabled()
    try:
        end_ns = time.perf_counter_ns() + budget_ns
        gc.disable()
        for count in range(-_WARM_UP, runs[1]):
            if count >= runs[0] and time.perf_counter_ns() >= end_ns:
                break
            for index in (0, 1) if count % 2 else (1, 0):
                buffers[index][...] = inputs[count % len(inputs)]
                start_ns = time.perf_counter_ns()
                runners[index].run([buffers[index]])
                if count >= 0:
                    times[index].append(time.perf_counter_ns() - start_ns)
            progress("timing", max(0, count + 1), runs[1])
    finally:
        if was_enabled:
            gc.enable()
    progress("timing", runs[1], runs[1])
    return times


@dataclass(frozen=True, eq=False)
class LayerPart:
    """One layer as a part that a back end runs."""

    name: str  # for messages
    input_shapes: tuple[tuple[int, ...], ...]  # one
    graph_hash: str  # SHA-256 of its form and weights
    module: torch.nn.Module
    inner_outputs: tuple[int, ...] = (0,)

    @staticmethod
    def of(name: str, module: torch.nn.Module, input_shape: tuple[int, ...]) -> LayerPart:
        """Wrap a layer."""
        from jetson_dnn_rt.models.sources.files import hash_state

        state = hash_state(module.state_dict(), repr(module))
        digest = hashlib.sha256(f"{state} {input_shape}".encode()).hexdigest()
        return LayerPart(name, (input_shape,), digest, module)

    def torch_module(self) -> torch.nn.Module:
        """A copy of the layer."""
        return copy.deepcopy(self.module).eval()

    def onnx_model(self) -> bytes:
        """Export the layer."""
        from jetson_dnn_rt.models.sources.torch import export_onnx

        return export_onnx(self.torch_module(), self.input_shapes, self.name)


def keep_faster(backend: str, precision: str = "fp32", *, threads: int = 1) -> KeepIf:
    """Build a ``keep_if`` for `jetson_dnn_rt.lab.compress.decomposition.decompose`.

    It keeps a decomposed layer that is faster than the full one, and otherwise returns both
    medians.
    """

    def keep_if(
        name: str, before: torch.nn.Module, after: torch.nn.Module, input_shape: tuple[int, ...]
    ) -> tuple[bool, str]:
        def make_runner(index: int) -> Runner:
            part = LayerPart.of(name, (before, after)[index], input_shape)
            return create_runner(part, backend, precision, threads=threads)

        value = np.random.default_rng(0).standard_normal(input_shape, np.float32)
        with open_pair(make_runner) as runners:
            times = time_in_turn(runners, [value], runs=(_LEAST, _MOST), budget_ns=_BUDGET_NS)
        full_ns, reduced_ns = (float(np.median(column)) for column in times)
        if reduced_ns < (1.0 - _GAIN) * full_ns:
            return True, ""
        return False, f"not faster: {reduced_ns * 1e-6:.3g} ms against {full_ns * 1e-6:.3g}"

    return keep_if
