# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Make a smaller network out of a model, with frames and without labels.

Layers are decomposed (Tucker-2 or SVD) where that makes them faster on this machine. With
--recover-steps the result learns from the full model. It is stored in the library under the name
that parameter files use, as in tucker-0.50@openvino-fp32, timed in turn with the full model, and
compared with it on held-out frames; the measurements are those that build would make. An
interrupted recovery continues where it stopped.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.build import DEFAULT_RUNS, count_build_threads
from jetson_dnn_rt.cli.options import add_trust, parse_count, parse_share
from jetson_dnn_rt.cli.progress import PhaseProgress, format_duration
from jetson_dnn_rt.cli.text import Cell, format_rows
from jetson_dnn_rt.config.parameter_file import read_parameter_files
from jetson_dnn_rt.config.perception import read_task
from jetson_dnn_rt.config.task import LEAST_AGREEMENT, NO_CACHE, TaskConfig
from jetson_dnn_rt.errors import ConfigurationError, naming
from jetson_dnn_rt.variants.spec import METHODS, RULES, DecompositionSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jetson_dnn_rt.frames import Frame
    from jetson_dnn_rt.lab.compress.compression import Compression
    from jetson_dnn_rt.lab.compress.measuring import Judgement
    from jetson_dnn_rt.variants.library.library import Library

HELP = "make a smaller network out of a model, with frames and without labels"
DEFAULT_RANKS = "macs:0.5"
DEFAULT_FRAMES = "synthetic"
FRAMES_LIMIT = 256

REPORT, WEIGHTS, LAYERS = "report.json", "weights.safetensors", "layers.csv"

_FINDINGS = {"mAP@0.5": "boxes", "mIoU": "classes", "top-1": "classes"}

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--model", metavar="MODEL", help="builtin:NAME, onnx:PATH, torchvision:NAME, exported:PATH"
    )
    source.add_argument(
        "--params", type=Path, metavar="FILE",
        help="ROS parameter file: the model of a task with its head, preprocessing, labels, "
        "build_frames, least_agreement and engine_cache",
    )  # fmt: skip
    add("--task", metavar="TASK", help="of --params (default: its only task)")
    add("--weights", default="DEFAULT", help="for torchvision: DEFAULT, none, or a file")
    add_trust(parser)
    add(
        "--input-size", type=parse_count, nargs=2, metavar=("H", "W"),
        help="of the network's input, where the model leaves it open",
    )  # fmt: skip
    add("--method", choices=METHODS, default=METHODS[0], help=f"default {METHODS[0]}")
    add(
        "--ranks", default=DEFAULT_RANKS, metavar="RULE:VALUE",
        help=f"{', '.join(RULES)}: macs:0.5 keeps half of the multiply-accumulates, ratio:0.33 a "
        "third of the channels, energy:0.95 that share of each mode, evbmf:0.8 what empirical "
        f"Bayes finds, weakened (default {DEFAULT_RANKS})",
    )  # fmt: skip
    add(
        "--frames", metavar="SOURCE",
        help="video:PATH, bag:PATH[#/topic], images:DIR or synthetic[:SEED] (default synthetic)",
    )  # fmt: skip
    add(
        "--frames-limit", type=parse_count, default=FRAMES_LIMIT, metavar="N",
        help=f"number of frames, spread over the source (default {FRAMES_LIMIT})",
    )  # fmt: skip
    add(
        "--data-aware", action=argparse.BooleanOptionalAction, default=True,
        help="let the frames decide on ranks and factors (default), not only on the recovery",
    )  # fmt: skip
    add(
        "--recover-steps", type=_parse_steps, default=0, metavar="N",
        help="training steps towards the full model (default 0)",
    )  # fmt: skip
    add("--seed", type=_parse_steps, default=0, metavar="N", help="recovery seed (default 0)")
    add("--backend", default="", help="back end for timing (default: the fastest installed)")
    add(
        "--threads", type=parse_count, metavar="N",
        help="threads per run (default: those of the task, else 1)",
    )  # fmt: skip
    add(
        "--least-agreement", type=parse_share, metavar="A",
        help="with the full model, in [0, 1]; what agrees less is refused and never loaded, "
        f"exit code 1; 0 = any (default: the task's, else {LEAST_AGREEMENT})",
    )  # fmt: skip
    add("--keep-slower", action="store_true", help="keep decomposed layers that are not faster")
    add(
        "--engine-cache", default="", metavar="DIR|none",
        help="the library (default ~/.cache/jetson_dnn_rt); none = store nothing",
    )  # fmt: skip
    add("--output", type=Path, metavar="DIR", help=f"write {REPORT}, {WEIGHTS} and {LAYERS}")
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Compress a model and report.

    ConfigurationError: an option or the parameter file cannot be used, the budget is out of reach,
    or what was made cannot be kept.
    """
    from jetson_dnn_rt.variants.library.library import Library

    spec = DecompositionSpec.parse_ranks(args.method, args.ranks)
    task, threads = _read_task(args)
    cache = args.engine_cache or (task.engine_cache if task else "")
    library = _open_library(cache)
    if args.output is not None:
        try:
            args.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"--output {args.output}: {error.strerror}") from error
    with tempfile.TemporaryDirectory() as folder:
        # What is measured is in a library, if only for that long.
        judgement = _compress(args, task, threads, spec, library or Library(Path(folder)))
    if library is None:
        judgement = replace(judgement, compression=replace(judgement.compression, entry=None))
    if args.output is not None:
        write_output(args.output, judgement)
        print(f"written: {args.output}/{{{REPORT},{WEIGHTS},{LAYERS}}}", file=sys.stderr)
    print(format_report(judgement), file=sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(judgement.to_json()))
    if library is not None:
        library.check_kept()
    return 1 if judgement.refused else 0


def _read_task(args: argparse.Namespace) -> tuple[TaskConfig | None, int]:
    """The task of --params, None with --model; and the threads of one run."""
    if args.params is None:
        if args.task is not None:
            raise ConfigurationError("--task is one of a parameter file: give --params, too")
        return None, args.threads or 1
    if args.weights != "DEFAULT" or args.input_size or args.trust:
        raise ConfigurationError(
            "--weights, --input-size and --trust are for --model: put weights and input_size into "
            f"{args.params}, or give --model"
        )
    file = read_parameter_files([args.params])
    name = args.task or (file.tasks[0] if len(file.tasks) == 1 else "")
    if name not in file.tasks:
        given = f"there is no task {name}" if name else "which task is meant"
        raise ConfigurationError(
            f"{args.params}: {given}; fix: --task with one of {', '.join(file.tasks)}"
        )
    task = read_task(file, name)
    return task, args.threads or count_build_threads(file, task)


def _compress(
    args: argparse.Namespace,
    task: TaskConfig | None,
    threads: int,
    spec: DecompositionSpec,
    library: Library,
) -> Judgement:
    from jetson_dnn_rt.lab.compress.compression import compress
    from jetson_dnn_rt.lab.compress.measuring import judge
    from jetson_dnn_rt.models.sources.registry import load_model
    from jetson_dnn_rt.runtime.building.builder import BuildSettings, TaskPlan
    from jetson_dnn_rt.runtime.task import make_settings, open_model
    from jetson_dnn_rt.variants.measuring.sample_frames import open_frames

    given = args.frames or (task.build_frames if task else "")
    source = given or DEFAULT_FRAMES
    least = args.least_agreement
    if least is None:
        least = task.least_agreement if task else LEAST_AGREEMENT
    if not given:
        logger.warning(
            "no --frames: using the built-in road scenes; frames of your own camera fit a network "
            "to what it will see"
        )
    opened = open_frames(source, args.frames_limit)  # before a model is loaded for nothing
    if task is not None:
        model = open_model(task)
    else:
        size = tuple(args.input_size) if args.input_size else None
        model = load_model(args.model, input_size=size, weights=args.weights, trust=args.trust)
        task = TaskConfig(model=args.model, kind=model.kind)
    with PhaseProgress() as progress:
        progress.begin(f"{model.source} {spec}")

        def watch() -> Iterator[Frame]:
            for done, frame in enumerate(opened, 1):
                progress("frames", done, args.frames_limit)
                yield frame

        compression = compress(
            model,
            spec,
            frames=watch(),
            source=source,
            recover_steps=args.recover_steps,
            library=library,
            backend=args.backend,
            threads=threads,
            data_aware=args.data_aware,
            keep_slower=args.keep_slower,
            seed=args.seed,
            settings=make_settings(task, model),
            progress=progress,
        )
        task = replace(task, variants=(str(compression.variant),), variant="")
        settings = BuildSettings(
            frames=source,
            runs=DEFAULT_RUNS,
            any_frames=not given,
            keep_slower=args.keep_slower or least <= 0.0,
        )
        plan = TaskPlan(task, model, threads)
        return judge(compression, plan, library, settings, least, progress)


def write_output(folder: Path, judgement: Judgement) -> None:
    """Write report, weights and the table of layers."""
    from jetson_dnn_rt.lab.report.export.tables import guard_cells
    from jetson_dnn_rt.variants.decomposition import encode_weights

    compression = judgement.compression
    report = json.dumps(judgement.to_json(), indent=1) + "\n"
    with naming(folder):
        (folder / REPORT).write_text(report, encoding="utf-8")
        (folder / WEIGHTS).write_bytes(encode_weights(compression.fit.graph))
        with (folder / LAYERS).open("w", encoding="utf-8", newline="") as file:
            rows = list_layers(compression)
            writer = csv.writer(file)
            writer.writerow(rows[0] if rows else [])
            writer.writerows(guard_cells(row.values()) for row in rows)


def list_layers(compression: Compression) -> list[dict[str, Any]]:
    """One row for each layer, with its result."""
    rows = []
    for layer in compression.fit.decomposition.layers:
        row = {"layer": layer.name, **asdict(layer), "error": round(layer.error, 6)}
        row["ranks"] = "x".join(map(str, layer.ranks))
        del row["name"]
        rows.append(row)
    return rows


def format_report(judgement: Judgement) -> str:
    """The layers and the results of the whole network, as text."""
    compression = judgement.compression
    decomposition = compression.fit.decomposition
    rows: list[list[Cell]] = [
        [
            row["layer"],
            row["ranks"] or "-",
            f"{row['macs_before'] / 1e6:.2f}",
            f"{row['macs_after'] / 1e6:.2f}",
            f"{100.0 * row['error']:.1f}" if row["ranks"] else "-",
            row["reason"] or "decomposed",
        ]
        for row in list_layers(compression)
    ]
    header = ["layer", "ranks", "MACs M", "after", "error %", "state"]
    before, after = judgement.full.total, judgement.measurement.total
    agreement, recovery = judgement.agreement, compression.fit.recovery
    change = 100.0 * (after.p50_ns / before.p50_ns - 1.0)
    lines = [
        format_rows(header, rows),
        "",
        f"{compression.model} {decomposition.spec}",
        f"  MACs        {decomposition.macs_before / 1e6:.1f} M -> "
        f"{decomposition.macs_after / 1e6:.1f} M ({100 * (decomposition.macs_kept - 1):+.1f} %)",
        f"  parameters  {decomposition.parameters_before / 1e3:.0f} k -> "
        f"{decomposition.parameters_after / 1e3:.0f} k",
        f"  time        {before.p50_ns / 1e6:.2f} ms -> {after.p50_ns / 1e6:.2f} ms "
        f"({change:+.1f} %; p99 {before.p99_ns / 1e6:.2f} -> {after.p99_ns / 1e6:.2f}) on "
        f"{compression.variant.backend}, {compression.threads} thread(s)",
        f"  agreement   {agreement} with the full model, which found {agreement.evidence} "
        f"{_FINDINGS[agreement.metric]} in {agreement.frames} held-out frames of "
        f"{compression.frames}",
    ]
    if recovery is not None:
        lines.append(
            f"  recovery    loss {recovery.loss_before:.4g} -> {recovery.loss_after:.4g} on "
            f"{recovery.held_out} held-out frames, best at step {recovery.best_step} of "
            f"{recovery.steps}, {format_duration(recovery.seconds)}"
        )
    if decomposition.note:
        lines.append(f"  note        {decomposition.note}")
    if judgement.refused:
        lines.append(f"  REFUSED     {judgement.refused}")
    if compression.entry is not None and compression.entry.path is not None:
        lines.append(f"  kept in     {compression.entry.path}")
    return "\n".join(lines)


def _open_library(name: str) -> Library | None:
    from jetson_dnn_rt.variants.library.library import Library

    if name == NO_CACHE:
        return None
    library = Library(Path(name) if name else None)
    library.check_writable()
    return library


def _parse_steps(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 0 or more")
    return int(text)
