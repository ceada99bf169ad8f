# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Build and measure the variants of a parameter file beforehand, and keep both in the library.

Variants already in the library are not built again. A variant that approximates and is neither
faster nor lighter than the full model on its back end is refused, with the figures. Exit code 1
when a listed one could not be built.

Variants in int8 are calibrated on the frames, without labels; layers that cost too much agreement
stay in fp32, and one that cannot agree as much as --agreement asks for is refused.

Kernels of TVM are tuned within tvm_trials and tvm_minutes. Ctrl-C keeps what was measured, and the
next build goes on from there; nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.library import COLUMNS, figures_to_dict, format_figures
from jetson_dnn_rt.cli.options import parse_count, parse_positive
from jetson_dnn_rt.cli.progress import PhaseProgress, format_duration
from jetson_dnn_rt.cli.text import format_rows
from jetson_dnn_rt.config.checked_names import check_names
from jetson_dnn_rt.config.nodes import PERCEPTION, PerceptionNodeConfig
from jetson_dnn_rt.config.parameter_file import ParameterFile, read_parameter_files
from jetson_dnn_rt.config.perception import read_task, refuse_unknown_tasks
from jetson_dnn_rt.config.task import TaskConfig, count_threads, follows_load
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.variants.spec import VariantSpec, parse_variants

if TYPE_CHECKING:
    from jetson_dnn_rt.runtime.building.builder import BuildReport, TaskBuilder

HELP = "build and measure the variants of a parameter file beforehand"
DEFAULT_RUNS = 100

# Options that override the parameter of the same name.
_OPTIONS = ("engine_cache", "tvm_trials", "tvm_minutes", "tvm_rpc")

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    text = "ROS parameter file; may be repeated, later ones win"
    add("--params", type=Path, action="append", metavar="FILE", required=True, help=text)
    text = "of the nodes (default: that of perception in the file)"
    add("--namespace", default="", metavar="NAMESPACE", help=text)
    text = "only this task of the file; may be repeated"
    add("--task", action="append", default=[], metavar="TASK", help=text)
    add(
        "--frames",
        metavar="SOURCE",
        help="frames to fit and to compare with: video:PATH, bag:PATH, images:DIR or "
        "synthetic[:SEED] (default: build_frames of the task, else synthetic)",
    )
    text = "train decomposed networks this many steps towards the full one (default 0)"
    add("--recover-steps", type=_parse_steps, default=0, metavar="N", help=text)
    add(
        "--agreement",
        type=_parse_share,
        metavar="A",
        help="agreement with fp32 that int8 variants must reach, in (0, 1]: layers stay in fp32 "
        "until they do (default 0.98)",
    )
    text = f"timed runs of each variant (default {DEFAULT_RUNS})"
    add("--runs", type=parse_count, default=DEFAULT_RUNS, metavar="N", help=text)
    text = "the library (default: engine_cache of the task, else ~/.cache/jetson_dnn_rt)"
    add("--engine-cache", metavar="DIR", help=text)
    add(
        "--batch",
        type=parse_count,
        metavar="N",
        help="build engines for batches of up to N frames too (default: as many as tasks that are "
        "built for may run as one batch)",
    )
    text = "candidates to measure of each kernel of TVM (default: tvm_trials of the task)"
    add("--tvm-trials", type=parse_count, metavar="N", help=text)
    text = "after which tuning of one variant ends (default: tvm_minutes of the task)"
    add("--tvm-minutes", type=parse_positive, metavar="MIN", help=text)
    text = "board that kernels are tuned for and measured on (default: tvm_rpc of the task)"
    add("--tvm-rpc", metavar="HOST:PORT", help=text)
    text = "compile kernels of TVM that are tuned, and tune none"
    add("--no-tuning", action="store_true", help=text)
    add("--again", action="store_true", help="measure what is there already, too")
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Build the missing variants and report them all.

    Raises `ConfigurationError` when the file, a task or the library cannot be used, or the library
    could not keep what was built.
    """
    begin_s = time.monotonic()
    jobs = _plan(args)
    with PhaseProgress() as progress:
        reports = [report for job in jobs for report in job.failures]
        total = sum(len(job.missing) for job in jobs)
        numbers = iter(range(1, 1 + total))
        for job in jobs:
            reports += _build(job, progress, numbers, total)
    seconds = time.monotonic() - begin_s
    references = [r for job in jobs for r in reports if job.is_reference(r)]
    listed = [r for r in reports if r not in references]
    libraries = list(dict.fromkeys(str(j.builder.library.root) for j in jobs if j.builder))
    table = _format(listed, references, libraries, seconds)
    print(table, file=sys.stderr if args.json else sys.stdout)
    if args.json:
        result = {
            "libraries": libraries,
            "variants": [_report_to_dict(report) for report in listed],
            "references": [_report_to_dict(report) for report in references],
            "seconds": seconds,
        }
        print(json.dumps(result))
    for job in jobs:
        if job.builder is not None:
            job.builder.library.check_kept()
    return 1 if any(report.state == "failed" for report in listed) else 0


@dataclasses.dataclass(frozen=True)
class _Job:
    """A task of the file: what is to be built for it, and what cannot be, with the reasons."""

    task: str
    builder: TaskBuilder | None
    missing: tuple[VariantSpec, ...] = ()
    failures: tuple[BuildReport, ...] = ()

    def is_reference(self, report: BuildReport) -> bool:
        """Whether a variant was measured only for comparison with others."""
        if self.builder is None or report.task != self.task:
            return False
        return report.variant in map(str, self.builder.plan.references)


def _plan(args: argparse.Namespace) -> list[_Job]:
    file = read_parameter_files(args.params, args.namespace)
    for note in check_names(file):
        logger.warning("%s", note)
    refuse_unknown_tasks(file, args.task, file.tasks)
    # Errors of the file are reported before the first model is loaded.
    parameters = {}
    for task in args.task or file.tasks:
        given = {name: value for name in _OPTIONS if (value := getattr(args, name)) is not None}
        values = dataclasses.replace(read_task(file, task), **given)
        try:
            specs = parse_variants(values)
        except ConfigurationError as error:
            raise ConfigurationError(file.explain(task, error)) from error
        parameters[task] = values, specs
    alike = Counter(_batch_key(values) for values, _ in parameters.values())
    return [
        _plan_task(args, file, task, *given, args.batch or alike[_batch_key(given[0])])
        for task, given in parameters.items()
    ]


def _batch_key(values: TaskConfig) -> tuple[object, ...]:
    """The parameters that tasks must have in common to run as one batch."""
    return (
        values.batch, values.model, values.weights, values.head, values.input_size,
        tuple(values.preprocessing().items()), values.variants, values.stages,
        values.finest_stages, values.engine_cache, values.amp_lists, values.threads,
    )  # fmt: skip


def _plan_task(
    args: argparse.Namespace,
    file: ParameterFile,
    task: str,
    values: TaskConfig,
    specs: tuple[VariantSpec, ...],
    batch: int,
) -> _Job:
    from jetson_dnn_rt.clock import SteadyClock
    from jetson_dnn_rt.runtime.building.builder import BuildSettings, TaskBuilder, TaskPlan
    from jetson_dnn_rt.runtime.task import check_lists, open_library, open_model

    library = open_library(values.engine_cache)
    if library is None:
        raise ConfigurationError(f"{task}: engine_cache is none: there is nowhere to keep it")
    library.check_writable()
    try:
        check_lists(values)
        plan = TaskPlan(
            values,
            open_model(values),
            count_build_threads(file, values),
            batch if values.batch == "auto" else 1,
            not args.no_tuning,
        )
        frames = args.frames or values.build_frames
        options = BuildSettings(
            frames=frames or "synthetic",
            runs=args.runs,
            recover_steps=args.recover_steps,
            agreement=args.agreement,
            any_frames=not frames,
            again=args.again,
        )
        builder = TaskBuilder(plan, library, options, SteadyClock())
        # Before frames are read and full networks measured, which takes much longer.
        impossible = builder.find_impossible()
        failures = _fail(task, {str(spec): reason for spec, reason in impossible.items()})
        possible = [str(spec) for spec in plan.variants if spec not in impossible]
        if not possible:
            return _Job(task, None, failures=failures)
        if impossible:
            plan = dataclasses.replace(
                plan, config=dataclasses.replace(values, variants=tuple(possible))
            )
            builder = TaskBuilder(plan, library, options, SteadyClock())
        return _Job(task, builder, builder.list_missing(), failures)
    except JetsonDnnRtError as error:
        overridden = [name for name in _OPTIONS if getattr(args, name) is not None]
        text = file.explain(task, error, overridden)
        if isinstance(error, ConfigurationError):
            raise ConfigurationError(text) from error
        logger.error("%s", text)
        names = [str(spec) for spec in specs] or ["-"]
        return _Job(task, None, failures=_fail(task, dict.fromkeys(names, text)))


def count_build_threads(file: ParameterFile, values: TaskConfig) -> int:
    """Threads of one inference that the variants of a task of a file are measured with."""
    from jetson_dnn_rt.backends.threads import count_cores

    process = file.read(PerceptionNodeConfig, PERCEPTION)
    # The split of the cores is chosen when the process starts: until then one worker has them all.
    workers = 1 if follows_load(process.threads, [values]) else process.workers
    return count_threads(values, process.threads, count_cores(), workers)


def _fail(task: str, reasons: Mapping[str, str]) -> tuple[BuildReport, ...]:
    from jetson_dnn_rt.runtime.building.builder import FAILED, BuildReport

    return tuple(
        BuildReport(task, name, FAILED, reason, False, None, 0.0)
        for name, reason in reasons.items()
    )


def _build(
    job: _Job, progress: PhaseProgress, numbers: Iterator[int], total: int
) -> list[BuildReport]:
    reports: list[BuildReport] = []
    if job.builder is None:
        return reports
    for spec in job.builder.order:
        if spec in job.missing:
            progress.begin(f"{job.task} {spec}", next(numbers), total)
        report = job.builder.build(spec, progress)
        reports.append(report)
        if spec in job.missing:
            reason = f": {report.reason}" if report.reason else ""
            took = format_duration(report.seconds)
            progress.say(f"{job.task} {spec}: {report.state} in {took}{reason}")
    return reports


def _format(
    listed: Sequence[BuildReport],
    references: Sequence[BuildReport],
    libraries: Sequence[str],
    seconds: float,
) -> str:
    reports = [(r, "") for r in listed] + [(r, " (to compare with)") for r in references]
    rows = [
        [r.task, r.variant, r.state + note, *format_figures(r.measurement)] for r, note in reports
    ]
    lines = [format_rows(["task", "variant", "state", *COLUMNS], rows)]
    lines += [f"{r.task} {r.variant}: {r.note}" for r, _ in reports if r.note]
    lines += [f"{r.task} {r.variant}: {r.state}: {r.reason}" for r, _ in reports if r.reason]
    built = sum(report.fresh for report, _ in reports)
    lines.append(f"built {built} in {format_duration(seconds)}; {', '.join(libraries)}")
    return "\n".join(lines)


def _report_to_dict(report: BuildReport) -> dict[str, Any]:
    keys = ("task", "variant", "state", "reason", "note", "seconds")
    values = {key: getattr(report, key) for key in keys}
    return {**values, "built": report.fresh, **figures_to_dict(report.measurement)}


def _parse_share(text: str) -> float:
    value = parse_positive(text)
    if value > 1.0:
        raise argparse.ArgumentTypeError(f"must be in (0, 1]: {text}")
    return value


def _parse_steps(text: str) -> int:
    return 0 if text == "0" else parse_count(text)
