"""Measure how long the variants of models take: per layer, stage and model, alone and disturbed.

Runs them on real frames, stage by stage, at the present clocks, at those listed, or at a sample of
at most 50 from which all others are predicted, with the error of the prediction. Clocks are set
only when --clocks asks for it, and come back at the end. A profile that was broken off goes on
where it was when the same command is given again with the same --output folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.cli.options import (
    add_trace_limit,
    add_trust,
    parse_count,
    parse_deadline,
    parse_positive,
)
from jetson_dnn_rt.cli.progress import PhaseProgress
from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from jetson_dnn_rt.frames import Frame
    from jetson_dnn_rt.lab.profile.journal import Journal
    from jetson_dnn_rt.lab.profile.profiling import ProfiledTask
    from jetson_dnn_rt.lab.profile.report import Profiled
    from jetson_dnn_rt.lab.profile.session import Interference, ProfileSession
    from jetson_dnn_rt.lab.profile.target import ProfileTarget
    from jetson_dnn_rt.platforms.platform import Platform

HELP = "measure variants: distributions per layer and stage, tables for the coordinator"
DEFAULT_RUNS = 200
DEFAULT_FRAMES = "synthetic"
FRAMES_LIMIT = 64
LEAST_RUNS = 10  # at each point of a sample; a median of fewer is of no use

MAX_COHORT = 16
LAYER, STAGE, MODEL = "layer", "stage", "model"
DEFAULT_OPERATOR_RUNS = 10

_TASK = re.compile(r"[a-z][a-z0-9_]*")

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add(
        "--model",
        action="append",
        required=True,
        metavar="[TASK=]MODEL",
        help="builtin:NAME, onnx:PATH, ...; may be repeated: one table a task",
    )
    add_trust(parser)
    add(
        "--variants",
        default="all",
        metavar="all|LIST",
        help="names with commas between; all = what the library has of the model, and the full "
        "model (default)",
    )
    add(
        "--runs",
        type=parse_count,
        default=DEFAULT_RUNS,
        metavar="N",
        help=f"timed frames of each variant; a quarter at points of a sample (default "
        f"{DEFAULT_RUNS})",
    )
    add(
        "--frames",
        metavar="SOURCE",
        help="video:PATH, bag:PATH[#/topic], images:DIR or synthetic[:SEED] (default synthetic)",
    )
    add(
        "--clocks",
        default="current",
        metavar="CONFIG,...|current|sample",
        help="CONFIG = number of a configuration, slowest, fastest, or a power mode as MAXN; "
        "sample = at most 50, the rest is predicted (default current)",
    )
    add(
        "--per",
        choices=(LAYER, STAGE, MODEL),
        default=STAGE,
        help="how far times are told apart; layer runs the networks once more, layer by layer "
        "(default stage)",
    )
    add(
        "--interference",
        type=_parse_interference,
        default=(),
        metavar="none,cpu,memory,gpu,cohort:N",
        help="measure again beside a load on every core; copies of memory; a load on the GPU; "
        "N - 1 other tasks, or copies of the task where it is the only one",
    )
    add(
        "--cold",
        type=_parse_none_or_count,
        default=0,
        metavar="K",
        help="first frames of K fresh processes for each variant, measured apart (default 0)",
    )
    add(
        "--operators",
        type=_parse_none_or_count,
        metavar="N",
        help="frames under the PyTorch profiler, in a pass of its own, for attribution (default "
        f"{DEFAULT_OPERATOR_RUNS} where --output is a folder or --per is layer, else 0)",
    )
    add(
        "--stages", type=_parse_none_or_count, default=0, metavar="N",
        help="0 = automatic (default)",
    )  # fmt: skip
    add(
        "--finest-stages", action="store_true",
        help="one run per stage on every back end, as the task's parameter finest_stages",
    )  # fmt: skip
    add(
        "--amp-lists", default="", metavar="FILE",
        help="of variants in fp16 by TVM, as the task's parameter amp_lists",
    )  # fmt: skip
    add("--threads", type=parse_count, default=1, metavar="N", help="of one run (default 1)")
    add("--rate", type=parse_positive, default=30.0, metavar="HZ", help="of frames (default 30)")
    add(
        "--deadline",
        type=parse_deadline,
        action="append",
        default=[],
        metavar="TASK=MS",
        help="relative deadline (default: one period)",
    )
    add("--engine-cache", type=Path, metavar="DIR", help="the library")
    add(
        "--weights",
        default="DEFAULT",
        metavar="DEFAULT|none|FILE",
        help="of torchvision: models; none = random ones, as good for times (default DEFAULT)",
    )
    add(
        "--output",
        type=Path,
        metavar="DIR|FILE.json",
        help="a folder for tables, report and traces, which a second start goes on with; or a "
        "file for the tables alone",
    )
    add_trace_limit(parser, "beyond it the command fails")
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Profile, write and report."""
    from jetson_dnn_rt.coordinator.tables.files import save_tables
    from jetson_dnn_rt.lab.profile.report import describe, format_report
    from jetson_dnn_rt.lab.profile.session import check_interference
    from jetson_dnn_rt.lab.profile.target import ProfileTarget
    from jetson_dnn_rt.lab.profile.tasks import (
        choose_clocks,
        list_settings,
        open_platform,
        open_tasks,
    )
    from jetson_dnn_rt.variants.measuring.sample_frames import open_frames

    begin_s = time.monotonic()
    # Before torch is imported: its profiler writes to stderr that there is no GPU.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    models = _name_tasks(args.model)
    target = ProfileTarget(args.output, args.trace_limit_mb)
    check_interference(args.interference)
    if args.frames is None:
        logger.warning(
            "no --frames: using the built-in road scenes; how long decoding takes depends on what "
            "your camera sees"
        )
    source = args.frames or DEFAULT_FRAMES
    frames = list(open_frames(source, FRAMES_LIMIT))
    if not frames:
        raise ConfigurationError(f"--frames {source}: there is no frame")
    if len(frames) == 1:
        logger.warning("--frames %s: one frame, so times vary less than on the road", source)
    with contextlib.ExitStack() as stack:
        platform = open_platform(args.clocks, stack)
        choose_clocks(args.clocks, platform)  # before a model is loaded for nothing
        tasks = open_tasks(args, models, target.settings, stack)
        journal = stack.enter_context(
            target.open_journal(list_settings(args, source, len(frames), tasks))
        )
        progress = stack.enter_context(PhaseProgress())
        stack.push(target.log_how_to_continue)
        session, profiled = _profile(args, tasks, frames, platform, journal, target, progress)
        report = describe(
            profiled, frames=source, runs=args.runs, threads=args.threads, per=args.per
        )
        report["resumed"] = journal.resumed > 0
        report["seconds"] = time.monotonic() - begin_s
        if target.tables is not None:
            save_tables(target.tables, profiled.to_file(report))
            report["output"] = str(args.output)
        if target.folder is not None:
            session.write_traces(
                {"runs": args.runs, "frames": source, "threads": args.threads, "workers": 1}
            )
            target.write_report(report)
    print(format_report(report), file=sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(report))
    return 0


def _name_tasks(models: Sequence[str]) -> dict[str, str]:
    """Models by task; a task without a name is named after its model."""
    tasks: dict[str, str] = {}
    for text in models:
        task, equals, model = text.partition("=")
        if not equals or ":" in task:
            model = text
            name = Path(text.partition(":")[2].partition(",")[0]).stem.lower()
            task = re.sub(r"[^a-z0-9_]+", "_", name).strip("_")
            task = task if _TASK.fullmatch(task) else f"task_{task}".rstrip("_")
        if not _TASK.fullmatch(task):
            raise ConfigurationError(f"--model {text}: {task!r} cannot be the name of a task")
        if task in tasks:
            raise ConfigurationError(
                f"--model: task {task} is there twice; fix: name them TASK=MODEL"
            )
        tasks[task] = model
    return tasks


def _profile(
    args: argparse.Namespace,
    tasks: Sequence[ProfiledTask],
    frames: Sequence[Frame],
    platform: Platform,
    journal: Journal,
    target: ProfileTarget,
    progress: PhaseProgress,
) -> tuple[ProfileSession, Profiled]:
    from jetson_dnn_rt.clock import SteadyClock
    from jetson_dnn_rt.lab.profile.profiling import Profiler
    from jetson_dnn_rt.lab.profile.report import Profiled
    from jetson_dnn_rt.lab.profile.session import ProfileSession
    from jetson_dnn_rt.lab.profile.tables import (
        make_measured_tables,
        make_predicted_tables,
    )
    from jetson_dnn_rt.lab.profile.tasks import (
        SAMPLE,
        choose_clocks,
        make_opener,
        make_specifier,
    )

    operators = args.operators
    if operators is None:
        wanted = target.folder is not None or args.per == LAYER
        operators = DEFAULT_OPERATOR_RUNS if wanted else 0
    phases = [args.per == LAYER, operators > 0, args.cold > 0]
    total = 1 + len(args.interference) + sum(phases)
    steps = iter(range(1, total + 1))

    def begin() -> None:
        progress.begin("profile", next(steps), total)

    clock = SteadyClock()
    positions = choose_clocks(args.clocks, platform)
    begin()
    profiler = Profiler(tasks, frames, platform, clock, progress, journal)
    session = ProfileSession(
        tasks, frames, platform, profiler, clock, args.threads, target, progress
    )
    found = session.found
    found.agreements = profiler.compare()
    predict = args.clocks == SAMPLE and len(positions or ()) < len(platform.space)
    of_others = max(LEAST_RUNS, args.runs // 4) if predict else args.runs
    found.points = profiler.measure_points(positions, args.runs, of_others, need_first=predict)
    make = make_predicted_tables if predict else make_measured_tables
    result = make(platform, tasks, found.points, found.agreements)
    fastest = int(result.clocks.indices[result.clocks.fastest])
    if positions is not None:
        platform.apply(fastest)
    alone = next((p for p in found.points if p.position == fastest), found.points[0]).times_ns
    for interference in args.interference:
        begin()
        session.measure_beside(interference, args.runs, alone, make_opener(args))
    if args.per == LAYER:
        begin()
        session.measure_layers(args.runs)
    if operators:
        begin()
        session.profile_operators(operators)
    if args.cold:
        begin()
        session.measure_cold(args.cold, make_specifier(args))
    return session, Profiled(tuple(tasks), platform, result, alone, found)


def _parse_interference(text: str) -> tuple[Interference, ...]:
    found: list[Interference] = []
    for part in text.split(","):
        kind, colon, count = part.partition(":")
        if kind == "cohort" and count.isdecimal() and 2 <= int(count) <= MAX_COHORT:
            found.append((kind, int(count)))
        elif kind in ("cpu", "memory", "gpu") and not colon:
            found.append((kind, 0))
        elif part != "none":
            raise argparse.ArgumentTypeError(
                f"{part!r} must be none, cpu, memory, gpu or cohort:N with N in [2, {MAX_COHORT}]"
            )
    return tuple(dict.fromkeys(found))


def _parse_none_or_count(text: str) -> int:
    return 0 if text == "0" else parse_count(text)
