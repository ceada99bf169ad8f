"""Measure what the coordinator decides by, and keep it in a file of tables.

Runs the variants of one or more models on real frames, stage by stage, at the present clocks, at
those listed, or at a sample of at most 50 from which all others are predicted, with the error of
the prediction. Clocks are set only when --clocks asks for it, and come back at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.cli.options import parse_count, parse_deadline, parse_positive
from jetson_dnn_rt.cli.profile_report import Profiled, describe, format_report
from jetson_dnn_rt.cli.progress import PhaseProgress
from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from jetson_dnn_rt.coordinator.interference import Beside
    from jetson_dnn_rt.coordinator.profiling import Key, ProfiledTask, Profiler
    from jetson_dnn_rt.frames import Frame
    from jetson_dnn_rt.models.model import Model
    from jetson_dnn_rt.platforms.platform import Platform
    from jetson_dnn_rt.variants.library import Library
    from jetson_dnn_rt.variants.variant_set import VariantSet

HELP = "measure variants at clocks, into a file of tables for the coordinator"
DEFAULT_RUNS = 200
DEFAULT_FRAMES = "synthetic"
FRAMES_LIMIT = 64
ALL = "all"
CURRENT, SAMPLE = "current", "sample"
LEAST_RUNS = 10
"""At each point of a sample; a median of fewer is of no use."""

MAX_COHORT = 16

_TASK = re.compile(r"[a-z][a-z0-9_]*")

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add(
        "--model",
        action="append",
        required=True,
        metavar="[TASK=]MODEL",
        help="builtin:NAME, onnx:PATH, ...; may be repeated: one table a task",
    )
    add(
        "--variants",
        default=ALL,
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
        default=CURRENT,
        metavar="CONFIG,...|current|sample",
        help="CONFIG = number of a configuration, slowest, fastest, or a power mode as MAXN; "
        "sample = at most 50, the rest is predicted (default current)",
    )
    add(
        "--interference",
        type=_parse_interference,
        default=(),
        metavar="none,cpu,cohort:N",
        help="measure beside a load on every core; beside up to N - 1 tasks of the cohort",
    )
    add("--stages", type=_parse_stages, default=0, metavar="N", help="0 = automatic (default)")
    add(
        "--finest-stages", action="store_true",
        help="one run per stage on every back end, as the task's parameter finest_stages",
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
    add("--output", type=Path, metavar="FILE", help="write the tables here")
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Profile, write and report.

    Raises
    ------
    ConfigurationError
        When an option, a model, the frames or the clocks cannot be used.
    """
    from jetson_dnn_rt.coordinator.table_files import save_tables
    from jetson_dnn_rt.variants.sample_frames import open_frames

    begin_s = time.monotonic()
    models = _name_tasks(args.model)
    if args.output is not None and not args.output.absolute().parent.is_dir():
        raise ConfigurationError(f"--output {args.output}: there is no folder for it")
    if args.frames is None:
        logger.warning(
            "no --frames: the built-in road scenes are taken; how long decoding takes depends on "
            "what your camera sees"
        )
    source = args.frames or DEFAULT_FRAMES
    frames = list(open_frames(source, FRAMES_LIMIT))
    if not frames:
        raise ConfigurationError(f"--frames {source}: there is not one frame")
    with contextlib.ExitStack() as stack:
        platform = _open_platform(args.clocks, stack)
        _choose_clocks(args.clocks, platform)  # before a model is loaded for nothing
        tasks = _open_tasks(args, models, stack)
        progress = stack.enter_context(PhaseProgress())
        profiled = _profile(args, tasks, frames, platform, progress, stack)
    report = describe(profiled, frames=source, runs=args.runs, threads=args.threads)
    report["seconds"] = time.monotonic() - begin_s
    if args.output is not None:
        save_tables(args.output, profiled.to_file(report))
        report["output"] = str(args.output)
    print(format_report(report), file=sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(report))
    return 0


# -- what is to be measured --------------------------------------------------------------------


def _name_tasks(models: Sequence[str]) -> dict[str, str]:
    """Model by task; where no task is given, it is named after the model."""
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
            raise ConfigurationError(f"--model: task {task} is there twice; name them TASK=MODEL")
        tasks[task] = model
    return tasks


def _open_platform(clocks: str, stack: contextlib.ExitStack) -> Platform:
    from jetson_dnn_rt.platforms.detect import detect
    from jetson_dnn_rt.platforms.platform import close_on_signals

    platform = stack.enter_context(detect(allow_writes=clocks != CURRENT, switch_cores=False))
    if clocks != CURRENT and not platform.writable:
        raise ConfigurationError(
            f"--clocks {clocks}: {platform.title}: {platform.reason}; leave them with --clocks "
            "current"
        )
    if platform.writable:
        close_on_signals(platform)
    return platform


def _choose_clocks(text: str, platform: Platform) -> list[int] | None:
    """Configurations to set, the fastest of a sample first; None = the clocks stay."""
    from jetson_dnn_rt.coordinator.clock_model import choose_points
    from jetson_dnn_rt.coordinator.profile_tables import find_presets

    if text == CURRENT:
        return None
    space = platform.space
    if text == SAMPLE:
        return [int(position) for position in choose_points(space, include=find_presets(platform))]
    names = {"slowest": space.slowest, "fastest": space.fastest}
    positions = []
    for part in text.split(","):
        if part in names:
            positions.append(names[part])
        elif part.isdecimal() and int(part) < len(space):
            positions.append(int(part))
        else:
            try:
                positions.append(platform.mode_index(part))
            except ValueError as error:
                raise ConfigurationError(
                    f"--clocks {part}: neither slowest, fastest nor a number below {len(space)}; "
                    f"{error}"
                ) from error
    return list(dict.fromkeys(positions))


def _open_tasks(
    args: argparse.Namespace, models: dict[str, str], stack: contextlib.ExitStack
) -> list[ProfiledTask]:
    from jetson_dnn_rt.coordinator.profiling import ProfiledTask
    from jetson_dnn_rt.models.sources import load_model
    from jetson_dnn_rt.variants.library import Library
    from jetson_dnn_rt.variants.measurement import approximates

    library = Library(args.engine_cache)
    period_ns = round(1e9 / args.rate)
    deadlines = dict(args.deadline)
    unknown = sorted(set(deadlines) - set(models))
    if unknown:
        raise ConfigurationError(f"--deadline {unknown[0]}: the tasks are {', '.join(models)}")
    tasks = []
    for task, name in models.items():
        model = load_model(name)
        names = _list_names(args.variants, model, library)
        variants = _open_variants(args, model, library, stack, names)
        if all(approximates(pipeline.spec) for pipeline in variants.pipelines.values()):
            raise ConfigurationError(
                f"--variants: task {task} needs a full one in fp32, with which the others are "
                "compared"
            )
        deadline_ns = int(deadlines[task] * 1e6) if task in deadlines else period_ns
        tasks.append(ProfiledTask(task, variants, deadline_ns, period_ns))
    return tasks


def _open_variants(
    args: argparse.Namespace,
    model: Model,
    library: Library | None,
    stack: contextlib.ExitStack,
    names: Sequence[str],
) -> VariantSet:
    from jetson_dnn_rt.clock import SteadyClock
    from jetson_dnn_rt.models.settings import DecoderSettings
    from jetson_dnn_rt.variants.variant_set import VariantSet

    variants = VariantSet(
        model,
        names,
        DecoderSettings(),
        threads=args.threads,
        clock=SteadyClock(),
        stages=args.stages,
        finest=args.finest_stages,
        library=library,
        build=False,
    )
    stack.callback(variants.close)
    return variants


def _list_names(text: str, model: Model, library: Library) -> list[str]:
    from jetson_dnn_rt.coordinator.library_tables import list_variants
    from jetson_dnn_rt.variants.variant_set import choose_default

    if text != ALL:
        return [name for name in text.split(",") if name]
    return list(dict.fromkeys([str(choose_default(model)), *list_variants(library, model)]))


# -- measuring ---------------------------------------------------------------------------------


def _profile(
    args: argparse.Namespace,
    tasks: Sequence[ProfiledTask],
    frames: Sequence[Frame],
    platform: Platform,
    progress: PhaseProgress,
    stack: contextlib.ExitStack,
) -> Profiled:
    from jetson_dnn_rt.clock import SteadyClock
    from jetson_dnn_rt.coordinator.profile_tables import (
        make_measured_tables,
        make_predicted_tables,
    )
    from jetson_dnn_rt.coordinator.profiling import Profiler

    positions = _choose_clocks(args.clocks, platform)
    progress.begin("profile")
    profiler = Profiler(tasks, frames, platform, SteadyClock(), progress)
    agreements = profiler.compare()
    predict = args.clocks == SAMPLE and len(positions or ()) < len(platform.space)
    of_others = max(LEAST_RUNS, args.runs // 4) if predict else args.runs
    points = profiler.measure_points(positions, args.runs, of_others, need_first=predict)
    make = make_predicted_tables if predict else make_measured_tables
    result = make(platform, tasks, points, agreements)
    if positions is not None:
        platform.apply(int(result.clocks.indices[result.clocks.fastest]))
    cohort, co_runners = _measure_interference(args, tasks, frames, profiler, progress, stack)
    return Profiled(tuple(tasks), platform, result, agreements, len(points), cohort, co_runners)


def _measure_interference(
    args: argparse.Namespace,
    tasks: Sequence[ProfiledTask],
    frames: Sequence[Frame],
    profiler: Profiler,
    progress: PhaseProgress,
    stack: contextlib.ExitStack,
) -> tuple[tuple[float, ...], dict[Key, Beside]]:
    from jetson_dnn_rt.clock import SteadyClock
    from jetson_dnn_rt.coordinator.interference import measure_beside_load, measure_cohort

    cohort: tuple[float, ...] = (1.0,)
    co_runners: dict[Key, Beside] = {}
    for kind, count in args.interference:
        if kind == "cpu":
            progress("beside a load on every core", 0, 1)
            co_runners = measure_beside_load(lambda: profiler.measure_times(args.runs))
        elif kind == "cohort":
            members = [tasks[n % len(tasks)].variants for n in range(count)]
            pipelines = [
                _open_variants(args, m.model, m.library, stack, [m.default]).pipelines[m.default]
                for m in members
            ]
            cohort = measure_cohort(pipelines, frames, args.runs, SteadyClock(), progress)
    return cohort, co_runners


# -- options -----------------------------------------------------------------------------------


def _parse_interference(text: str) -> tuple[tuple[str, int], ...]:
    found = []
    for part in text.split(","):
        kind, colon, count = part.partition(":")
        if kind == "cohort" and count.isdecimal() and 2 <= int(count) <= MAX_COHORT:
            found.append((kind, int(count)))
        elif kind == "cpu" and not colon:
            found.append((kind, 0))
        elif part != "none":
            raise argparse.ArgumentTypeError(
                f"{part!r} must be none, cpu or cohort:N with N in [2, {MAX_COHORT}]"
            )
    return tuple(found)


def _parse_stages(text: str) -> int:
    return 0 if text == "0" else parse_count(text)
