"""The tasks and the platform of a profile, as the options say, or as an earlier start found."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.coordinator.tables.library_tables import list_variants
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.profile.clock_model import choose_points
from jetson_dnn_rt.lab.profile.cold_start import ColdSpec
from jetson_dnn_rt.lab.profile.profiling import ProfiledTask
from jetson_dnn_rt.lab.profile.tables import find_presets
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.platforms import detect
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.platforms.platform import Platform
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.measurement import approximates
from jetson_dnn_rt.variants.running import variant_set
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.running.variant_set import VariantSet, choose_default

ALL = "all"
CURRENT, SAMPLE = "current", "sample"


def open_platform(wanted: str, stack: contextlib.ExitStack) -> Platform:
    """The platform, with clocks that can be set where they are to be.

    Raises
    ------
    ConfigurationError
        When clocks are to be set, and cannot be.
    """
    platform = stack.enter_context(
        detect.detect(allow_writes=wanted != CURRENT, switch_cores=False)
    )
    if wanted != CURRENT and not platform.writable:
        raise ConfigurationError(
            f"--clocks {wanted}: {platform.title}: {platform.reason}; leave them with --clocks "
            "current"
        )
    return platform


def choose_clocks(text: str, platform: Platform) -> list[int] | None:
    """Configurations to set, the fastest of a sample first; None = the clocks stay."""
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


def open_tasks(
    args: argparse.Namespace,
    models: dict[str, str],
    earlier: Mapping[str, Any],
    stack: contextlib.ExitStack,
) -> list[ProfiledTask]:
    """Load the variants of all models.

    Parameters
    ----------
    args : argparse.Namespace
        Of the command.
    models : dict of str to str
        By task.
    earlier : mapping
        Settings of an earlier start of the same profile.
    stack : contextlib.ExitStack
        Closes them.

    Raises
    ------
    ConfigurationError
        When an option does not fit.
    ModelError, BackendUnavailableError
        When a model or its full variant cannot be had.
    """
    library = Library(args.engine_cache)
    period_ns = round(1e9 / args.rate)
    deadlines = dict(args.deadline)
    unknown = sorted(set(deadlines) - set(models))
    if unknown:
        raise ConfigurationError(f"--deadline {unknown[0]}: the tasks are {', '.join(models)}")
    tasks = []
    for task, name in models.items():
        model = load_model(name, weights=args.weights, trust=args.trust)
        names = list_names(args.variants, model, library)
        # What an earlier start chose by measuring: other stages could not be added to those.
        known = earlier.get("tasks", {}).get(task, {})
        variants = open_variants(
            args, model, library, stack, names,
            stages=len(known.get("stages", ())) - 2 if not args.stages and known else args.stages,
            runs=known.get("runs"),
        )  # fmt: skip
        if all(approximates(pipeline.spec) for pipeline in variants.pipelines.values()):
            raise ConfigurationError(
                f"--variants: task {task} needs a full one in fp32, with which the others are "
                "compared"
            )
        deadline_ns = int(deadlines[task] * 1e6) if task in deadlines else period_ns
        tasks.append(ProfiledTask(task, variants, deadline_ns, period_ns))
    return tasks


def open_variants(
    args: argparse.Namespace,
    model: Model,
    library: Library | None,
    stack: contextlib.ExitStack,
    names: Sequence[str],
    *,
    stages: int,
    runs: Mapping[str, int] | None,
) -> VariantSet:
    """Load variants of a model as the options say."""
    config = TaskConfig(
        variants=tuple(names),
        stages=stages,
        finest_stages=args.finest_stages,
        amp_lists=args.amp_lists,
    )
    variants = variant_set.open_variants(
        config, model, threads=args.threads, library=library, clock=SteadyClock(), runs=runs
    )
    stack.callback(variants.close)
    return variants


def list_names(text: str, model: Model, library: Library) -> list[str]:
    """Names of variants that ``--variants`` means."""
    if text != ALL:
        return [name for name in text.split(",") if name]
    return list(dict.fromkeys([str(choose_default(model)), *list_variants(library, model)]))


def list_settings(
    args: argparse.Namespace, source: str, frames: int, tasks: Sequence[ProfiledTask]
) -> dict[str, Any]:
    """Everything that what is measured depends on; what may be asked for later is not in it."""
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


def make_opener(
    args: argparse.Namespace,
) -> Callable[[ProfiledTask, contextlib.ExitStack], Pipeline]:
    """Loads a co-runner: the first variant of a task, cut as that one is."""

    def open_pipeline(task: ProfiledTask, stack: contextlib.ExitStack) -> Pipeline:
        known = task.variants
        variants = open_variants(
            args, known.model, known.library, stack, [known.default],
            stages=len(known.stage_names) - 2, runs=count_runs(task),
        )  # fmt: skip
        return variants.pipelines[known.default]

    return open_pipeline


def make_specifier(args: argparse.Namespace) -> Callable[[ProfiledTask, str], ColdSpec]:
    """Says what a fresh process is to load for a variant."""

    def specify(task: ProfiledTask, variant: str) -> ColdSpec:
        library = task.variants.library
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

    return specify
