# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A network, or a run of its stages, as C99 sources that need no runtime.

DIR gets the kernels as TVM scheduled them, a driver with a static memory plan (one arena, nothing
is allocated), the weights, a header, a self-test with torch's outputs, a Makefile and a
CMakeLists.txt. `make -C DIR test` builds and checks them. Kernels are as fast as they were tuned
(`jetson-dnn-rt build` with a TVM variant); without tuning they are slow, which is logged.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.options import NONE, add_trust, parse_count
from jetson_dnn_rt.cli.text import Cell, format_rows
from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from jetson_dnn_rt.models.model import Model, Part
    from jetson_dnn_rt.tvm.export_c.export import Export
    from jetson_dnn_rt.tvm.target import TvmTarget
    from jetson_dnn_rt.variants.library.library import Library
    from jetson_dnn_rt.variants.spec import VariantSpec

HELP = "a network as C99 sources that need no runtime"
DEFAULT_VARIANT = "full@tvm-fp32"
MEASURED_RUNS = 20

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    text = "builtin:NAME, onnx:PATH, torchvision:NAME, exported:PATH"
    add("--model", required=True, metavar="MODEL", help=text)
    add("--model-weights", default="DEFAULT", help="for torchvision: DEFAULT, none, or a file")
    add_trust(parser)
    text = f"decomposition and precision, as tucker-0.50@tvm-fp32 (default {DEFAULT_VARIANT})"
    add("--variant", default=DEFAULT_VARIANT, metavar="VARIANT", help=text)
    add("--stages", type=parse_count, default=1, metavar="N", help="cut it into N (default 1)")
    add("--stage", type=parse_count, metavar="K", help="export only the K-th of them, from 1")
    text = "x86-64:CPU or aarch64:CPU with LLVM's name of the CPU (default: this machine)"
    add("--target", metavar="TARGET", help=text)
    text = "a file that your program loads (default), or constant arrays that are compiled"
    add("--weights", choices=("blob", "array"), default="blob", help=text)
    add("--name", metavar="NAME", help="prefix of files and C names (default: of the model)")
    text = (
        "the library with tuned kernels and decomposed networks (default ~/.cache/jetson_dnn_rt)"
    )
    add("--engine-cache", metavar="DIR|none", help=text)
    text = "print every operator with its C function, cost and memory"
    add("--call-graph", action="store_true", help=text)
    text = "build the sources, run the self-test, and add measured times to the call graph"
    add("--measure", action="store_true", help=text)
    add("--output", type=Path, required=True, metavar="DIR", help="where the sources are written")
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Export and report.

    Raises
    ------
    ConfigurationError
        When an option cannot be used.
    JetsonDnnRtError
        When the network cannot be written as C99, or the sources do not work.
    """
    from jetson_dnn_rt.backends.registry import require_backend
    from jetson_dnn_rt.models.sources.registry import load_model
    from jetson_dnn_rt.variants.library.library import Library
    from jetson_dnn_rt.variants.spec import VariantSpec

    spec = VariantSpec.parse(args.variant)
    if spec.backend != "tvm":
        raise ConfigurationError(
            f"--variant {spec}: kernels come from TVM: {spec.decomposition}@tvm-{spec.precision}"
        )
    if args.stage is not None and args.stage > args.stages:
        raise ConfigurationError(f"--stage {args.stage} of --stages {args.stages} is not there")
    if args.stage is None and args.stages > 1:
        raise ConfigurationError("--stages without --stage: say which one, from 1")
    require_backend("tvm", spec.precision)

    from jetson_dnn_rt.tvm.export_c.call_graph import measure_steps, write_call_graph
    from jetson_dnn_rt.tvm.export_c.export import ExportOptions, export_c
    from jetson_dnn_rt.tvm.export_c.sources import make_identifier
    from jetson_dnn_rt.tvm.library import TvmVariant

    target, local = _find_target(args.target)
    folder = Path(args.engine_cache) if args.engine_cache else None
    library = None if args.engine_cache == NONE else Library(folder)
    model = load_model(args.model, weights=args.model_weights, trust=args.trust)
    part = _find_part(model, spec, args.stages, args.stage, library)
    database = None
    if library is not None:
        variant = TvmVariant(model, spec, threads=1, library=library, target=target)
        database = variant.load_database()
    name = args.name or make_identifier(part.name)
    options = ExportOptions(name, f"{part.name}, {spec}", args.weights == "array", local)
    export = export_c(part, spec.precision, target, database, options, args.output)
    _warn_untuned(export, part, spec)
    times, run_us = None, None
    if args.measure:
        if not local:
            raise ConfigurationError(f"--measure: {target.text} is not this machine")
        times, run_us = measure_steps(args.output, name, MEASURED_RUNS)
    graph = write_call_graph(args.output, export, times)
    out = sys.stderr if args.json else sys.stdout
    if args.call_graph:
        print(format_call_graph(graph), file=out)
    print(_format_summary(args.output, export, run_us), file=out)
    if args.json:
        tuned = export.tuned
        report = {
            "model": part.name,
            "variant": str(spec),
            "target": target.text,
            "name": export.program.name,
            "files": [str(file) for file in export.files],
            "tuned": export.is_tuned,
            "kernels": len(export.program.kernels),
            "kernels_tuned": tuned.tuned if tuned is not None else 0,
            "run_ms": run_us / 1e3 if run_us is not None else None,
            "macs": export.program.macs,
            **graph["memory"],
            "call_graph": graph["steps"],
        }
        print(json.dumps(report))
    return 0


def _find_target(text: str | None) -> tuple[TvmTarget, bool]:
    """The target, for one thread, and whether it is this machine."""
    from jetson_dnn_rt.tvm.target import find_local_target, make_target, parse_target

    local = find_local_target(1)
    host = make_target(local.cpu, local.triple, "", 1)  # its CPU, whatever devices it has
    target = host if text is None else parse_target(text, 1)
    return target, target == host


def _find_part(
    model: Model, spec: VariantSpec, stages: int, stage: int | None, library: Library | None
) -> Part:
    from jetson_dnn_rt.variants.measuring.store import load_graph
    from jetson_dnn_rt.variants.network import Network

    network = Network(model, stages, library)
    if network.stages != stages:
        raise ConfigurationError(f"{model.source} has {network.stages} stages, not {stages}")
    if not spec.is_full:
        graph = load_graph(model, spec.decomposition, library)
        if graph is None:
            raise ConfigurationError(
                f"{spec.decomposition} of {model.source} is not in the library: "
                "run jetson-dnn-rt compress first"
            )
        network.add_decomposed(spec.decomposition, graph)
    return network.pieces(spec.decomposition)[(stage or 1) - 1].part


def _warn_untuned(export: Export, part: Part, spec: VariantSpec) -> None:
    if export.is_tuned:
        return
    state = export.tuned
    share = "no kernel" if state is None else f"{state.tuned} of {state.kernels} kernels"
    logger.warning(
        "%s: %s tuned for this target: the C code is RIGHT BUT SLOW, many times slower than it "
        "can be; run jetson-dnn-rt build with %s and one thread, then export again",
        part.name, share, spec,
    )  # fmt: skip


def format_call_graph(graph: dict[str, Any]) -> str:
    """The operators as a table."""
    measured = "time_us" in graph["steps"][0]
    header = ["step", "function", "MACs k", "work space", "in use", "reads", "writes"]
    if measured:
        header.insert(3, "us")
    rows: list[list[Cell]] = []
    for step in graph["steps"]:
        row = [str(step["step"]), step["function"], round(step["macs"] / 1e3)]
        if measured:
            row.append(f"{step['time_us']:.1f}")
        row += [step["workspace_bytes"], step["arena_bytes_in_use"]]
        row += [" ".join(map(_format_place, step[side])) for side in ("inputs", "outputs")]
        rows.append(row)
    return format_rows(header, rows)


def _format_place(place: dict[str, Any]) -> str:
    end = place["offset"] + place["bytes"]
    if place["place"] in ("input", "output"):
        return f"{place['place']}_{place['offset']}"
    return f"{place['place']}[{place['offset']}:{end}]"


def _format_summary(folder: Path, export: Export, run_us: float | None) -> str:
    plan = export.program.plan
    lines = [
        f"written: {folder} ({len(export.program.network.calls)} operators; "
        f"make -C {folder} test)",
        f"  arena    {plan.arena_bytes} bytes; least that buffers in use need {plan.bound_bytes}",
        f"  weights  {len(export.program.weight_blob)} bytes",
    ]
    if run_us is not None:
        lines.append(f"  run      {run_us / 1e3:.2f} ms, the least of {MEASURED_RUNS}")
    return "\n".join(lines)
