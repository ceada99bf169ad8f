# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""C sources of a network against the same kernels under TVM's own runtime, in turn, on one core.

Both get the schedules of the library (`jetson-dnn-rt build`); without them kernels are untuned,
which the table shows. Bars: the outputs equal torch's within 1e-4, the arena is at most 1.3 times
its lower bound, and the time at most 1.5 times TVM's.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.options import Options
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import Report, say_verdict, tabulate
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.tvm.compile import compile_module
from jetson_dnn_rt.tvm.export_c.export import Export, ExportOptions, export_c
from jetson_dnn_rt.tvm.library import TvmVariant
from jetson_dnn_rt.tvm.target import find_local_target, make_target
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.spec import VariantSpec

MODELS = ("builtin:detector", "builtin:segmenter", "torchvision:mobilenet_v2")
MAX_RATIO, MAX_ARENA = 1.5, 1.3
_BUILD_S = 3600.0
_LINK = "-shared -o net.so -Wl,--whole-archive libnet.a -Wl,--no-whole-archive -lm"


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    models = ", ".join(MODELS)
    add("--model", None, f"may be repeated; default {models}", action="append", metavar="MODEL")
    add("--runs", 50, "timed runs", least=1, metavar="N")
    add("--compiler", "gcc", "gcc (default) or clang")
    add("--engine-cache", None, "the library with tuned kernels", kind=Path, metavar="DIR")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all networks; `BenchmarkError` when the sources do not build or fail their test."""
    rows = [_measure(model, args) for model in args.model or MODELS]
    result = {"compiler": args.compiler, "runs": args.runs, "networks": rows}
    return {**result, "passed": rejudge(result)}


def rejudge(result: Mapping[str, Any]) -> bool:
    """Judge a result, also one that was written before."""
    return all(
        row["time_ratio"] <= MAX_RATIO and row["arena_ratio"] <= MAX_ARENA
        for row in result["networks"]
    )


def report(result: Mapping[str, Any]) -> Report:
    """Make a row for each network."""
    return [
        tabulate(
            result["networks"],
            "network=model, tuned, C ms=c_ms:.2f, TVM ms=tvm_ms:.2f, ratio=time_ratio:.2f",
            ("arena kB", lambda row: row["arena_bytes"] // 1000),
            "arena / bound=arena_ratio:.2f",
        ),
        f"{result['compiler']}; bars: ratio <= {MAX_RATIO}, arena <= {MAX_ARENA}: "
        f"{say_verdict(result['passed'])}",
    ]


def _measure(source: str, args: argparse.Namespace) -> dict[str, Any]:
    model = load_model(source, weights="none") if "torchvision" in source else load_model(source)
    found = find_local_target(1)
    target = make_target(found.cpu, found.triple, "", 1)
    spec = VariantSpec.parse("full@tvm-fp32")
    library = Library(args.engine_cache)
    variant = TvmVariant(model, spec, threads=1, library=library, target=target)
    options = ExportOptions("net", source)
    with tempfile.TemporaryDirectory(prefix="jetson_dnn_rt-export-") as name:
        folder = Path(name)
        database = variant.load_database()
        export = export_c(model, "fp32", target, database, options, folder)
        _call(["make", "-C", name, f"CC={args.compiler}", "CFLAGS_EXTRA=-fPIC"], folder)
        _call([str(folder / "net_selftest"), name], folder)
        _call([args.compiler, *_LINK.split()], folder)
        times = _time_in_turn(export, folder, target, args.runs)
    plan = export.program.plan
    return {
        "model": source,
        "tuned": export.is_tuned,
        "c_ms": float(np.median(times[0])) * 1e3,
        "tvm_ms": float(np.median(times[1])) * 1e3,
        "time_ratio": float(np.median(times[0] / times[1])),
        "arena_bytes": plan.arena_bytes,
        "arena_bound_bytes": plan.bound_bytes,
        "arena_ratio": plan.arena_bytes / plan.bound_bytes,
    }


def _time_in_turn(export: Export, folder: Path, target: Any, runs: int) -> Any:
    """Time C and TVM, one after the other; seconds, ``[2, runs]``."""
    import tvm
    from tvm import relax

    program = export.program
    machine = relax.VirtualMachine(compile_module(export.scheduled, target), tvm.cpu())
    inputs = [_align(program.network.tensor(each).bytes) for each in program.network.inputs]
    outputs = [_align(program.network.tensor(each).bytes) for each in program.network.outputs]
    for number, (value, name) in enumerate(zip(inputs, program.network.inputs, strict=True)):
        value[:] = np.fromfile(folder / f"net_input_{number}.bin", np.uint8)
        inputs[number] = value.view(np.float32).reshape(program.network.tensor(name).shape)
    tensors = [tvm.runtime.from_dlpack(value) for value in inputs]
    code = ctypes.CDLL(str(folder / "net.so"))
    weights, arena = _align(len(program.weight_blob)), _align(program.plan.arena_bytes)
    weights[:] = np.frombuffer(program.weight_blob, np.uint8)
    net = (ctypes.c_void_p * 2)()
    io = (ctypes.c_void_p * (len(inputs) + len(outputs)))(
        *(value.ctypes.data for value in (*inputs, *outputs))
    )
    memory: list[Any] = []
    for block in (weights, arena):
        memory += [ctypes.c_void_p(block.ctypes.data), ctypes.c_size_t(block.nbytes)]
    if (state := code.net_init(net, *memory)) != 0:
        raise BenchmarkError(f"net_init of the exported sources returned {state}")
    times = np.zeros((2, runs))
    for number in range(-3, runs):
        begin = time.perf_counter()
        code.net_run(net, io)
        middle = time.perf_counter()
        machine["main"](*tensors)
        end = time.perf_counter()
        if number >= 0:
            times[:, number] = middle - begin, end - middle
    return times


def _align(size: int) -> Any:
    memory = np.zeros(size + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + size]


def _call(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_BUILD_S, check=False
    )
    if done.returncode != 0:
        text = (done.stdout + done.stderr)[-600:]
        raise BenchmarkError(f"{' '.join(command)} failed: {text}")
