# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""One profile: tasks and platform from the options, measurements, and output."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jetson_dnn_rt import clock as clocks
from jetson_dnn_rt.cli.progress import PhaseProgress
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.coordinator.tables.files import TableFile, save_tables
from jetson_dnn_rt.coordinator.tables.library_tables import list_variants
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.profile.clock_model import choose_points, require_nnls
from jetson_dnn_rt.lab.profile.cold_start import ColdSpec
from jetson_dnn_rt.lab.profile.journal import Journal
from jetson_dnn_rt.lab.profile.profiling import ProfiledTask, Profiler
from jetson_dnn_rt.lab.profile.report import describe, format_report
from jetson_dnn_rt.lab.profile.session import ProfileSession, check_interference
from jetson_dnn_rt.lab.profile.tables import find_presets
from jetson_dnn_rt.lab.profile.target import JOURNAL, open_output, write_report
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.platforms import detect
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.platforms.platform import Platform
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.measurement import approximates
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.running.variant_set import VariantSet, choose_default

ALL = "all"
CURRENT, SAMPLE = "current", "sample"
LAYER = "layer"
DEFAULT_FRAMES = "synthetic"
FRAMES_LIMIT = 64

_TASK = re.compile(r"[a-z][a-z0-9_]*")

logger = logging.getLogger(__name__)


def profile(args: argparse.Namespace, default_operators: int) -> int:
    """Run the command; the default is that of ``--operators`` with a folder or by layer."""
    begin_s = time.monotonic()
    # Before torch is imported: its profiler writes to stderr that there is no GPU.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    models = name_tasks(args.model)
    tables, folder = open_output(args.output)
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
    if args.operators is None:
        args.operators = default_operators if folder is not None or args.per == LAYER else 0
    with contextlib.ExitStack() as stack:
        platform = open_platform(args.clocks, stack)
        positions = choose_clocks(args.clocks, platform)  # fails before a model is loaded
        loader = TaskLoader(args, stack)
        journal = stack.enter_context(Journal(folder and folder / JOURNAL))
        tasks = loader.open_tasks(models, journal.settings)
        journal.begin(list_settings(args, source, len(frames), tasks))
        if folder is not None:
            if journal.resumed:
                logger.info(
                    "%s: %d pieces are measured already, continuing", folder, journal.resumed
                )
            stack.push(partial(_log_how_to_continue, folder))
        progress = stack.enter_context(PhaseProgress())
        clock = clocks.SteadyClock()
        profiler = Profiler(tasks, frames, platform, clock, progress, journal)
        session = ProfileSession(profiler, args.threads, folder)
        _measure(session, loader, positions, progress)
        report = {
            **describe(session, args, source),
            "resumed": journal.resumed > 0,
            "seconds": time.monotonic() - begin_s,
        }
        if tables is not None:
            made = session.result
            cohort = tuple(session.cohort)
            file = TableFile(made.clocks, made.tables, cohort, made.power_measured, report)
            save_tables(tables, file)
            report["output"] = str(args.output)
        if folder is not None:
            about = {"runs": args.runs, "frames": source, "threads": args.threads, "workers": 1}
            session.write_traces(folder, about, args.trace_limit_mb)
            write_report(folder, report)
    print(format_report(report), file=sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(report))
    return 0


def _log_how_to_continue(folder: Path, kind: object, error: object, traceback: object) -> None:
    if error is not None:
        logger.info("measurements are kept in %s: the same command continues", folder)


def _measure(
    session: ProfileSession,
    loader: TaskLoader,
    positions: list[int] | None,
    progress: PhaseProgress,
) -> None:
    args, runs = loader.args, loader.args.runs
    predict = args.clocks == SAMPLE and len(positions or ()) < len(session.platform.space)
    passes = [partial(session.measure_tables, positions, runs, predict=predict)]
    for kind, count in args.interference:
        passes.append(partial(session.measure_beside, kind, count, runs, loader.open_pipeline))
    if args.per == LAYER:
        passes.append(partial(session.measure_layers, runs))
    if args.operators:
        passes.append(partial(session.profile_operators, args.operators))
    if args.cold:
        passes.append(partial(session.measure_cold, args.cold, loader.cold_spec))
    for number, measure in enumerate(passes, start=1):
        progress.begin("profile", number, len(passes))
        measure()


def name_tasks(models: Sequence[str]) -> dict[str, str]:
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


def open_platform(wanted: str, stack: contextlib.ExitStack) -> Platform:
    """The platform; `ConfigurationError` if clocks are to be set and cannot be."""
    platform = stack.enter_context(
        detect.detect(allow_writes=wanted != CURRENT, switch_cores=False)
    )
    if wanted != CURRENT and not platform.writable:
        raise ConfigurationError(
            f"--clocks {wanted}: {platform.title}: {platform.reason}; fix: leave them with "
            "--clocks current"
        )
    return platform


def choose_clocks(text: str, platform: Platform) -> list[int] | None:
    """Configurations to set, the fastest of a sample first; None = the clocks stay."""
    if text == CURRENT:
        return None
    space = platform.space
    if text == SAMPLE:
        require_nnls()  # before minutes of measurements
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


class TaskLoader:
    """Loader of the models and variants in the options; the stack closes them."""

    def __init__(self, args: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.args = args
        self._stack = stack
        self._library = Library(args.engine_cache)

    def open_tasks(
        self, models: Mapping[str, str], earlier: Mapping[str, Any]
    ) -> list[ProfiledTask]:
        """Load the variants of all models, given by task.

        `earlier` are the settings of an earlier start of the same profile.
        """
        args = self.args
        period_ns = round(1e9 / args.rate)
        deadlines = dict(args.deadline)
        unknown = sorted(set(deadlines) - set(models))
        if unknown:
            raise ConfigurationError(f"--deadline {unknown[0]}: the tasks are {', '.join(models)}")
        tasks = []
        for task, name in models.items():
            model = load_model(name, weights=args.weights, trust=args.trust)
            # An earlier start chose stages by measuring; times of other stages could not be added.
            known = earlier.get("tasks", {}).get(task, {})
            stages = len(known["stages"]) - 2 if known and not args.stages else args.stages
            names = list_names(args.variants, model, self._library)
            variants = self._open(
                model, names, self._library, self._stack, stages, known.get("runs")
            )
            if all(approximates(pipeline.spec) for pipeline in variants.pipelines.values()):
                raise ConfigurationError(
                    f"--variants: task {task} needs a full one in fp32, with which the others are "
                    "compared"
                )
            deadline_ns = int(deadlines[task] * 1e6) if task in deadlines else period_ns
            tasks.append(ProfiledTask(task, variants, deadline_ns, period_ns))
        return tasks

    def open_pipeline(self, task: ProfiledTask, stack: contextlib.ExitStack) -> Pipeline:
        """Load a co-runner: the first variant of a task, cut into the same stages."""
        known = task.variants
        stages = len(known.stage_names) - 2
        names = [known.default]
        variants = self._open(known.model, names, known.library, stack, stages, count_runs(task))
        return variants.pipelines[known.default]

    def _open(
        self,
        model: Model,
        names: Sequence[str],
        library: Library | None,
        stack: contextlib.ExitStack,
        stages: int,
        runs: Mapping[str, int] | None,
    ) -> VariantSet:
        args = self.args
        config = TaskConfig(
            variants=tuple(names),
            stages=stages,
            finest_stages=args.finest_stages,
            amp_lists=args.amp_lists,
        )
        clock = clocks.SteadyClock()
        task = Task(
            config, threads=args.threads, clock=clock, model=model, frames=(), library=library,
            runs=runs,
        )  # fmt: skip
        stack.callback(task.close)
        return task.variants

    def cold_spec(self, task: ProfiledTask, variant: str) -> ColdSpec:
        """Describe what a fresh process loads for a variant."""
        args, library = self.args, task.variants.library
        return ColdSpec(
            model=task.variants.model.source,
            variant=variant,
            threads=args.threads,
            stages=len(task.variants.stage_names) - 2,
            runs=count_runs(task)[variant],
            finest=args.finest_stages,
            weights=args.weights,
            library=None if library is None else str(library.root),
            amp_lists=args.amp_lists,
            trust=args.trust,
        )


def list_names(text: str, model: Model, library: Library) -> list[str]:
    """Names of the variants of ``--variants``."""
    if text != ALL:
        return [name for name in text.split(",") if name]
    return list(dict.fromkeys([str(choose_default(model)), *list_variants(library, model)]))


def list_settings(
    args: argparse.Namespace, source: str, frames: int, tasks: Sequence[ProfiledTask]
) -> dict[str, Any]:
    """List the settings that measurements depend on, without those that may be added later."""
    machine = describe_machine()
    return {
        "tasks": {
            task.name: {
                "model": task.variants.model.source,
                "model_hash": task.variants.model.model_hash,
                "stages": list(task.variants.stage_names),
                "variants": list(task.variants.pipelines),
                "runs": count_runs(task),
            }
            for task in tasks
        },
        "runs": args.runs,
        "frames": {"source": source, "count": frames},
        "clocks": args.clocks,
        "threads": args.threads,
        "finest_stages": args.finest_stages,
        "amp_lists": args.amp_lists,
        "machine": {key: machine[key] for key in ("cpu", "cores", "gpu", "python", "versions")},
    }


def count_runs(task: ProfiledTask) -> dict[str, int]:
    """Runs of the network in each variant: a back end may do several stages in one."""
    return {name: len(p.segments) for name, p in task.variants.pipelines.items()}
