# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Call graph of a network, operator by operator, for its certification."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from jetson_dnn_rt.errors import BackendUnavailableError, JetsonDnnRtError
from jetson_dnn_rt.tvm.export_c.export import Export
from jetson_dnn_rt.tvm.export_c.kernels import ALIGNMENT
from jetson_dnn_rt.tvm.export_c.planner import find_bound
from jetson_dnn_rt.tvm.export_c.program import Program

FILE = "call_graph.json"

_BUILD_S = 1800.0
_RUN_S = 600.0
_STEP = re.compile(r"step (\d+) us ([0-9.]+) ")
_RUN = re.compile(r"run us ([0-9.]+)")


def describe_steps(program: Program, times_us: list[float] | None = None) -> list[dict[str, Any]]:
    """List the operators in the order in which they run.

    Each has ``step``, ``function``, ``macs``, ``operations`` (on floats); ``inputs`` and
    ``outputs`` with ``place`` (input, output, weight, arena), ``offset`` and ``bytes``;
    ``workspace_offset``, ``workspace_bytes``; ``arena_bytes_in_use``; ``time_us`` where it was
    measured.
    """
    rows = []
    for step, call in enumerate(program.network.calls):
        kernel = program.kernels[call.kernel]
        row: dict[str, Any] = {
            "step": step,
            "function": f"{program.name}_{call.kernel}",
            "macs": kernel.macs,
            "operations": kernel.operations,
            "inputs": [_describe_place(program, name) for name in call.inputs],
            "outputs": [_describe_place(program, name) for name in call.outputs],
            "workspace_bytes": kernel.workspace_bytes,
            "workspace_offset": program.plan.offsets.get(f"workspace of {step}"),
            "stack_array_bytes": kernel.stack_bytes,
            "arena_bytes_in_use": program.in_use(step),
        }
        if times_us is not None:
            row["time_us"] = times_us[step]
        rows.append(row)
    return rows


def write_call_graph(
    folder: Path, export: Export, times_us: list[float] | None = None
) -> dict[str, Any]:
    """Write ``call_graph.json`` and return its content."""
    program = export.program
    tensors = [block for block in program.blocks if not block.name.startswith("workspace")]
    memory = {  # in bytes
        "arena_bytes": program.plan.arena_bytes,
        "arena_bound_bytes": program.plan.bound_bytes,
        "arena_bound_without_workspaces_bytes": find_bound(tensors, ALIGNMENT),
        "weights_bytes": len(program.weight_blob),
        "stack_array_bytes": program.stack_bytes,
    }
    steps = describe_steps(program, times_us)
    graph = {"name": program.name, "tuned": export.is_tuned, "memory": memory, "steps": steps}
    (folder / FILE).write_text(json.dumps(graph, indent=1) + "\n", encoding="utf-8")
    return graph


def measure_steps(folder: Path, name: str, runs: int) -> tuple[list[float], float]:
    """Build the sources with ``make``, run the self-test, and read the time of each operator.

    Returns the least of `runs` times of each operator and of a whole run, in microseconds. Raises
    `BackendUnavailableError` when there is no gcc or no make, `JetsonDnnRtError` with their output
    when the sources cannot be built or the self-test fails.
    """
    for tool in ("gcc", "make"):
        if shutil.which(tool) is None:
            raise BackendUnavailableError(
                f"there is no {tool} to measure with: apt install {tool}"
            )
    _run(["make", "-C", str(folder)], _BUILD_S)
    text = _run([str((folder / f"{name}_selftest").resolve()), str(folder), str(runs)], _RUN_S)
    whole = _RUN.search(text)
    steps = [float(time) for _, time in _STEP.findall(text)]
    if whole is None or not steps:
        raise JetsonDnnRtError(f"the self-test in {folder} printed no times: {text[-300:]}")
    return steps, float(whole[1])


def _run(command: list[str], limit_s: float) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise JetsonDnnRtError(f"{' '.join(command)} took more than {limit_s:.0f} s") from error
    if done.returncode != 0:
        raise JetsonDnnRtError(
            f"{' '.join(command)} failed ({done.returncode}): {(done.stdout + done.stderr)[-600:]}"
        )
    return done.stdout


def _describe_place(program: Program, name: str) -> dict[str, Any]:
    network, tensor = program.network, program.network.tensor(name)
    place: dict[str, Any] = {"name": name, "shape": list(tensor.shape), "bytes": tensor.bytes}
    if name in network.constants:
        return {**place, "place": "weight", "offset": program.weight_offsets[name]}
    if name in network.inputs:
        return {**place, "place": "input", "offset": network.inputs.index(name)}
    if name in network.outputs:
        return {**place, "place": "output", "offset": network.outputs.index(name)}
    return {**place, "place": "arena", "offset": program.plan.offsets[name]}
