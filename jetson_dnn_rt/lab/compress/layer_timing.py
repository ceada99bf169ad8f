"""Whether a decomposed layer is faster on this machine: fewer operations often gain no time.

Both are run alone on a back end, in turn, on inputs of the real shape.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import create_runner

if TYPE_CHECKING:
    import torch

_WARM_UP = 3
_LEAST, _MOST = 15, 200  # runs of each
_BUDGET_NS = 150_000_000  # for the runs of both
_GAIN = 0.03  # a smaller one is within what the medians of two equal layers differ by


@dataclass(frozen=True, eq=False)
class LayerPart:
    """One layer as a back end takes it.

    Attributes
    ----------
    name : str
        For messages.
    input_shapes : tuple of tuple of int
        One shape.
    graph_hash : str
        SHA-256 over its form and weights.
    module : torch.nn.Module
        The layer.
    """

    name: str
    input_shapes: tuple[tuple[int, ...], ...]
    graph_hash: str
    module: torch.nn.Module

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


def keep_faster(
    backend: str, precision: str = "fp32", *, threads: int = 1
) -> Callable[[str, torch.nn.Module, torch.nn.Module, tuple[int, ...]], tuple[bool, str]]:
    """Make a ``keep_if`` for `jetson_dnn_rt.lab.compress.decomposition.decompose`.

    Parameters
    ----------
    backend, precision : str
        What the network is to run on.
    threads : int
        Threads of one run.

    Returns
    -------
    callable
        Says whether a decomposed layer is faster than the layer it would replace and, if not,
        gives both medians. Errors are those of `create_runner`.
    """

    def keep_if(
        name: str,
        before: torch.nn.Module,
        after: torch.nn.Module,
        input_shape: tuple[int, ...],
    ) -> tuple[bool, str]:
        runners: list[Runner] = []
        try:
            for module in (before, after):
                part = LayerPart.of(name, module, input_shape)
                runners.append(create_runner(part, backend, precision, threads=threads))
            value = np.random.default_rng(0).standard_normal(input_shape, np.float32)
            full_ns, reduced_ns = _measure(runners, value)
        finally:
            for runner in runners:
                runner.close()
        if reduced_ns < (1.0 - _GAIN) * full_ns:
            return True, ""
        return False, f"not faster: {reduced_ns * 1e-6:.3g} ms against {full_ns * 1e-6:.3g}"

    return keep_if


def _measure(runners: list[Runner], value: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Medians in ns of two runners, run in turn."""
    inputs = []
    for runner in runners:
        buffer = runner.allocate_input()
        buffer[...] = value
        inputs.append(buffer)
    for _ in range(_WARM_UP):
        for runner, value in zip(runners, inputs, strict=True):
            runner.run([value])
    taken: list[list[int]] = [[], []]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        end_ns = time.perf_counter_ns() + _BUDGET_NS
        for count in range(_MOST):
            if count >= _LEAST and time.perf_counter_ns() >= end_ns:
                break
            for index in (0, 1) if count % 2 else (1, 0):
                start_ns = time.perf_counter_ns()
                runners[index].run([inputs[index]])
                taken[index].append(time.perf_counter_ns() - start_ns)
    finally:
        if was_enabled:
            gc.enable()
    return float(np.median(taken[0])), float(np.median(taken[1]))
