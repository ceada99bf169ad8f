# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Table of paper 003: TVM unoptimised, by default, with AMP, tuned, and both, and other back ends.

The paper optimises ResNet50, MobileNetV2 and EfficientNetV2-S with TVM for a Jetson Xavier: its
graph alone, which TVM does by default, mixed precision (AMP), tuned schedules, and both; its base
is TVM without any of it. Here the same networks at 224 x 224 (of torchvision,
with random weights) and the built-in ones, on this machine, with a limited time to tune. All rows
of a network take turns, round by round, in one process; a mean is that of --runs runs, as in the
paper, which has 50. Rows that take more than a second have --slow-runs. With --databases the
results of tuning are stored, and a run continues where the one before stopped: the minutes are
those of all runs together. --graph-only measures what the optimisation of
the graph gains by itself, on TVM, whose kernels have no schedules then, and on ONNX Runtime, whose
kernels are written by hand; nothing is tuned and nothing judged.

Passes if tuned kernels are 5 times faster than TVM's default and faster than OpenCV DNN, for
MobileNetV2 and the built-in networks; if tuning took at most 60 minutes in total; and if AMP costs
the built-in networks at most 0.3 points of mAP@0.5 or mIoU, against ground truth.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.accuracy import METRICS, compare_accuracy
from benchmarks.backends.bench import add_opencv, make_runner
from benchmarks.harness.networks import (
    Chain,
    Lineup,
    Shown,
    describe_error,
    load_plausible,
    report_figures,
    report_models,
)
from benchmarks.harness.options import Options, echo
from benchmarks.harness.tables import Report, Table, flatten, judge_all, say, say_bars, tabulate
from benchmarks.harness.timing import Times, quantile_ms
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.onnxruntime import OnnxRuntimeRunner
from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.cli.progress import PhaseProgress, format_duration
from jetson_dnn_rt.cli.text import format_figure
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.graph.folded_norms import fold_norms
from jetson_dnn_rt.models.graph.mixed_precision import convert_to_fp16
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.tvm.compile import compile_module, schedule
from jetson_dnn_rt.tvm.database import FILES, HEADER, TuningDatabase
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.runner import TvmRunner
from jetson_dnn_rt.tvm.target import TvmTarget, find_local_target
from jetson_dnn_rt.tvm.tuning import TuningState, count_tuned, tune
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs
from jetson_dnn_rt.variants.network import Network
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.spec import FULL

SIZE, FRAMES = (224, 224), 4
QUICK = {"runs": 3, "slow_runs": 2, "scenes": 4}

REFERENCE, OPENCV = "torch-eager", "opencv-fp32"
PLAIN = "tvm unoptimised"
DEFAULT, AMP, TUNED, BOTH = TVM_ROWS = ("tvm", "tvm +amp", "tvm tuned", "tvm tuned +amp")
ORT_PLAIN, ORT = "onnxruntime unoptimised", "onnxruntime-fp32"
OTHERS = (ORT, "openvino-fp32", "openvino-bf16", "tensorrt-fp32", "tensorrt-fp16")
ROWS = (REFERENCE, PLAIN, *TVM_ROWS, ORT_PLAIN, *OTHERS, OPENCV)
GRAPH_ROWS = (REFERENCE, PLAIN, DEFAULT, ORT_PLAIN, ORT)
UNOPTIMISED = {**dict.fromkeys(TVM_ROWS, PLAIN), ORT: ORT_PLAIN}
"""Rows, and the same back end with nothing optimised."""
SHORT_TYPES = (AMP, BOTH, "openvino-bf16", "tensorrt-fp16")
"""Rows in reduced precision, which are compared by agreement."""

SLOW_MS = 1000.0
AGREEMENT_BAR = 0.9
"""Agreement below which a row in reduced precision is faulty; random weights agree less."""

BARS = {
    "times_faster_than_default": 5.0,
    "times_faster_than_opencv": 1.0,
    "tuning_minutes": 60.0,
    "points_lost_by_amp": 0.3,
}
PAPER: dict[str, Any] = {
    "where": "Jetson AGX Xavier, 224 x 224, mean of 50 runs, TVM 0.9.0dev on the GPU",
    "trials": 20_000,
    "tvm_tuned_amp_ms": {"resnet50": 5.57, "mobilenet_v2": 1.04, "efficientnet_v2_s": 7.42},
    "tensorrt_fp16_ms": {"resnet50": 3.05, "mobilenet_v2": 1.37, "efficientnet_v2_s": 7.13},
    "both_times_faster_than_unoptimised": [3.2, 5.4],
    "graph_and_amp_save_percent": [13, 59],
    "graph_and_tuning_save_percent": [60, 77],
    "share_of_tuning_percent": [34, 71],
    "amp_faster_percent": {"resnet50": -25, "mobilenet_v2": 15, "efficientnet_v2_s": 38},
    "amp_saves_tuned_percent": [10, 34],
    "both_times_faster_than_opencv": [18.1, 34.2],
    "top1_fp32_fp16": {"resnet50": [78.2, 78.0], "mobilenet_v2": [73.0, 73.0]},
}
"""Tables 2 and 3, and the ranges in the text; the paper's figures have no numbers. What is saved,
and the times of both, are against TVM without any optimisation, which `PLAIN` is here; the share
of tuning is that in the time saved by graph and tuning together."""


SPENT = "spent.json"
"""File beside a database: total seconds of its tuning, lowering included, over all runs."""

_LOCK = "lock"

# The last batch of a network ends after its time is over.
_KEPT_BACK = 0.01


@dataclass(frozen=True)
class Entry:
    """Network of the table: its source, its shares of the time to tune, and its bars.

    `barred`: whether the bars of speed apply to it.
    """

    source: str
    fp32: float
    fp16: float
    barred: bool = False

    def load(self) -> tuple[Model, list[Frame]]:
        """Load the network and frames for it; torchvision's at 224 x 224, others at their own."""
        frames = list(open_frames("synthetic", FRAMES))
        size = SIZE if self.source.startswith("torchvision:") else None
        return load_plausible(self.source, frames, size), frames


# Those with bars are tuned first; the last one has by far the most kernels.
NETWORKS = {
    "mobilenet_v2": Entry("torchvision:mobilenet_v2", 0.20, 0.04, True),
    "detector": Entry("builtin:detector", 0.12, 0.04, True),
    "segmenter": Entry("builtin:segmenter", 0.10, 0.04, True),
    "resnet50": Entry("torchvision:resnet50", 0.13, 0.04),
    "efficientnet_v2_s": Entry("torchvision:efficientnet_v2_s", 0.17, 0.12),
}


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--models", list(NETWORKS), "default all", choices=NETWORKS)
    add("--minutes", 60.0, "for tuning, all networks and runs together", least=0, most=1440)
    add("--trials", 1000, "most candidates of one kernel, as many as in the paper", least=1)
    add("--databases", None, "where the results of tuning are stored", kind=Path, metavar="DIR")
    add("--threads", 1, "of one run, for all back ends", least=1)
    add("--runs", 50, "timed runs of each row", least=1)
    add("--slow-runs", 5, "of rows that take more than a second", least=1)
    add("--scenes", 200, "held-out scenes for the accuracy of AMP", least=1)
    only = add.one_of()
    only("--tune-only", False, "tune, measure nothing")
    only("--no-tuning", False, "measure with the kernels tuned so far")
    only("--graph-only", False, "measure what optimising the graph gains, tune nothing")
    add("--quick", False, "few runs and scenes, nothing is judged")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Tune and measure the networks; `BackendUnavailableError` when TVM is missing."""
    info = inspect_backend("tvm")
    if not info.available:
        raise BackendUnavailableError(f"back end tvm: {info.reason}; {info.fix}")
    if args.databases is None and (args.tune_only or args.no_tuning):
        raise ConfigurationError("--tune-only and --no-tuning need --databases DIR")
    if args.quick:
        vars(args).update(QUICK)
    with tempfile.TemporaryDirectory(prefix="paper003-") as folder:
        return _run(args, {name: NETWORKS[name] for name in args.models}, Path(folder))


def _run(
    args: argparse.Namespace, networks: Mapping[str, Entry], temporary: Path
) -> dict[str, Any]:
    target = find_local_target(args.threads)
    folder = DatabaseFolder(args.databases or temporary / "databases", target)
    jobs = plan_jobs({n: {"fp32": one.fp32, "fp16": one.fp16} for n, one in networks.items()})
    library = Library(temporary / "library")

    @functools.cache
    def load(name: str) -> tuple[Network, list[Frame]]:
        say(f"paper003: {name}: loading")
        model, frames = networks[name].load()
        return Network(model, 1, library), frames

    def find_part(name: str) -> Any:
        return load(name)[0].pieces(FULL, 1)[0].part

    minutes = 0.0 if args.no_tuning or args.graph_only else args.minutes
    names = GRAPH_ROWS if args.graph_only else ROWS
    result: dict[str, Any] = {
        "threads": args.threads,
        "target": target.text,
        **echo(args, "runs minutes"),
        "shares": {job.name: round(job.share, 4) for job in jobs},
        "quick": args.quick,
        "paper": PAPER,
        "bars": BARS,
        "tuning": {}
        if args.graph_only
        else tune_all(jobs, find_part, folder, minutes=minutes, trials=args.trials),
        "models": {},
        "accuracy": {},
    }
    for name in () if args.tune_only else networks:
        compiler = Compiler(target, {j.precision: (j, folder) for j in jobs if j.network == name})
        result["models"][name] = measure_network(name, *load(name), compiler, args, names)
        if networks[name].source.startswith("builtin:") and not args.graph_only:
            with PhaseProgress() as progress:
                progress.begin(f"paper003: {name}")
                result["accuracy"][name] = measure_amp(
                    name, find_part(name), compiler, args.threads, args.scenes, progress
                )
    barred = {name: one.barred and not args.graph_only for name, one in networks.items()}
    result["reached"] = judge(result, barred)
    passed = judge_all(result["reached"].values())
    result["passed"] = None if args.quick or args.tune_only else passed
    return result


# -- tuning --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One network in one precision, and its share of the time, in (0, 1]."""

    network: str
    precision: str
    share: float

    @property
    def name(self) -> str:
        """Name of its folder, and in messages."""
        return f"{self.network}-{self.precision}"


def plan_jobs(shares: Mapping[str, Mapping[str, float]]) -> list[Job]:
    """Plan jobs from shares by network and precision, fp32 first; unused shares are shared out."""
    total = sum(share for own in shares.values() for share in own.values())
    return [
        Job(name, precision, own[precision] / total)
        for precision in ("fp32", "fp16")
        for name, own in shares.items()
    ]


def find_allowance_s(
    jobs: list[Job], index: int, spent_s: Mapping[str, float], budget_s: float
) -> float:
    """Find the seconds that the job at `index` may take now; `spent_s` includes earlier runs.

    Unused time of the jobs before it is added, time that they or it spent already is subtracted,
    and no job gets more than is left of the total.
    """
    usable_s = budget_s * (1.0 - _KEPT_BACK)
    so_far = jobs[: index + 1]
    due_s = usable_s * sum(job.share for job in so_far)
    left_s = usable_s - sum(spent_s.get(job.name, 0.0) for job in jobs)
    return max(0.0, min(left_s, due_s - sum(spent_s.get(job.name, 0.0) for job in so_far)))


class DatabaseFolder:
    """Folder with one tuning database for each job, all for one target."""

    def __init__(self, folder: Path, target: TvmTarget) -> None:
        self._folder, self.target = folder, target
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, job: Job) -> TuningDatabase:
        """Load a job's database; `DatabaseError` when it is for another target, or damaged."""
        place = self._folder / job.name
        if not (place / HEADER).is_file():
            return TuningDatabase(self.target)
        files = {name: (place / name).read_bytes() for name in FILES if (place / name).is_file()}
        return TuningDatabase.from_files(files, self.target)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other runs; `ConfigurationError` when another one is tuning."""
        with open(self._folder / _LOCK, "a", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigurationError(
                    f"another run tunes into {self._folder}: wait for it, or give another folder"
                ) from error
            yield

    def find_spent_s(self, job: Job) -> float:
        """Find the seconds that a job took so far."""
        path = self._folder / job.name / SPENT
        if not path.is_file():
            return 0.0
        try:
            return float(json.loads(path.read_text(encoding="utf-8"))["seconds"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path} is damaged: {error!r}; remove its folder") from error

    def store(self, job: Job, database: TuningDatabase, spent_s: float) -> None:
        """Store a database.

        Workloads and records only grow, and the later file refers to the earlier one: an
        interruption between the two does no harm.
        """
        place = self._folder / job.name
        place.mkdir(exist_ok=True)
        spent = json.dumps({"seconds": spent_s}) + "\n"
        files = database.to_files()
        contents = {name: files[name] for name in FILES} | {SPENT: spent.encode()}
        for name, content in contents.items():
            fresh = place / f"{name}.new"
            fresh.write_bytes(content)
            fresh.replace(place / name)


def tune_all(
    jobs: list[Job],
    find_part: Callable[[str], Part],
    folder: DatabaseFolder,
    *,
    minutes: float,
    trials: int,
) -> dict[str, dict[str, Any]]:
    """Tune the jobs in their order; one that fails has a note, and the next one follows.

    `find_part` returns the network of a name. `minutes` are for all of them, earlier runs
    included; 0 tunes nothing and counts the kernels tuned so far. `trials` are the most candidates
    of a kernel.

    Returns by job: kernels, how many of them are tuned, trials, seconds, or why it failed.
    `ConfigurationError` when another run tunes into the same folder.
    """
    found: dict[str, dict[str, Any]] = {}
    with folder.lock() if minutes else nullcontext(), PhaseProgress() as progress:
        spent_s = {job.name: folder.find_spent_s(job) for job in jobs}
        for index, job in enumerate(jobs):
            allowed_s = find_allowance_s(jobs, index, spent_s, 60.0 * minutes)
            progress.begin(f"paper003: {job.name}", index + 1, len(jobs))
            try:
                part = find_part(job.network)
                found[job.name] = _tune(job, part, folder, spent_s, allowed_s, trials, progress)
            except Exception as error:  # TVM's errors have no class in common
                found[job.name] = {"note": f"{type(error).__name__}: {error}"[:400]}
                progress.say(f"paper003: {job.name} failed: {found[job.name]['note']}")
            found[job.name]["seconds"] = round(spent_s[job.name], 1)
    return found


def _tune(
    job: Job,
    part: Part,
    folder: DatabaseFolder,
    spent_s: dict[str, float],
    allowed_s: float,
    trials: int,
    progress: PhaseProgress,
) -> dict[str, Any]:
    began_s, before_s, target = time.monotonic(), spent_s[job.name], folder.target
    database = folder.load(job)
    module = lower(part, job.precision, target)

    def keep(now: TuningDatabase) -> None:
        spent_s[job.name] = before_s + time.monotonic() - began_s
        folder.store(job, now, spent_s[job.name])

    if allowed_s > 0.0:
        left_s = allowed_s - (time.monotonic() - began_s)
        if left_s > 0.0:
            minutes = left_s / 60.0
            tune(module, database, trials, minutes=minutes, progress=progress, checkpoint=keep)
        keep(database)
    state = count_tuned(module, database)
    progress.say(
        f"paper003: {job.name}: {state.tuned} of {state.kernels} kernels, {state.trials} trials, "
        f"{format_duration(spent_s[job.name])} in all"
    )
    return asdict(state)


# -- the rows of a network -----------------------------------------------------------------------


class Compiler:
    """Maker of a network's runners for TVM; `databases` have the schedules by precision."""

    def __init__(
        self, target: TvmTarget, databases: Mapping[str, tuple[Job, DatabaseFolder]]
    ) -> None:
        self._target, self._databases = target, databases

    def compile_plain(self, part: Part) -> TvmRunner:
        """Compile without any optimisation: a kernel for each operator, without a schedule."""
        module = lower(part, "fp32", self._target, channels_last=False, graph_passes=False)
        return self._compile(part, "fp32", module)

    def compile_default(self, precision: str, part: Part) -> TvmRunner:
        """Compile by default: TVM's own layout, kernels without schedules."""
        module = lower(part, precision, self._target, channels_last=False)
        return self._compile(part, precision, schedule(module, self._target, None))

    def compile_tuned(self, precision: str, part: Part) -> tuple[TvmRunner, TuningState]:
        """Compile with the best schedules so far; `ModelError` when no kernel has one."""
        job, folder = self._databases[precision]
        database = folder.load(job)
        module = lower(part, precision, self._target)
        state = count_tuned(module, database)
        if not state.tuned:
            raise ModelError(f"none of its {state.kernels} kernels is tuned")
        return self._compile(part, precision, schedule(module, self._target, database)), state

    def _compile(self, part: Part, precision: str, module: Any) -> TvmRunner:
        return TvmRunner(part, precision, compile_module(module, self._target), self._target)


def measure_network(
    title: str,
    network: Network,
    frames: Sequence[Frame],
    compiler: Compiler,
    args: argparse.Namespace,
    names: Sequence[str] = ROWS,
) -> dict[str, Any]:
    """Measure the rows of these names in turn; a row that fails has the reason.

    `ModelError` when torch cannot run the network: there is nothing to compare with.
    """
    images = prepare_inputs(network.model, frames)
    with ExitStack() as stack:
        # TVM's errors have no class in common.
        lineup = Lineup(network.model, frames, stack, Exception)

        def compile_tuned(precision: str, row: str, part: Part) -> Runner:
            runner, state = compiler.compile_tuned(precision, part)
            lineup.notes[row] = f"{state.trials} trials"
            if not state.complete:
                lineup.notes[row] += f", only {state.tuned} of {state.kernels} kernels tuned"
            return runner

        makers: dict[str, Callable[[Part], Runner]] = {
            REFERENCE: partial(make_runner, REFERENCE, args.threads),
            PLAIN: compiler.compile_plain,
            DEFAULT: partial(compiler.compile_default, "fp32"),
            AMP: partial(compiler.compile_default, "fp16"),
            TUNED: partial(compile_tuned, "fp32", TUNED),
            BOTH: partial(compile_tuned, "fp16", BOTH),
            ORT_PLAIN: partial(open_unoptimised, args.threads),
            **{name: partial(make_runner, name, args.threads) for name in OTHERS},
        }
        for number, name in enumerate(filter(makers.__contains__, names), 1):
            say(f"paper003: {title}: {name} (row {number} of {len(names)})")
            lineup.add(name, partial(Chain, network.pieces(FULL, 1), makers[name]))
        if REFERENCE not in lineup.chains:
            raise ModelError(f"{network.model.source} on torch: {lineup.notes[REFERENCE]}")
        if OPENCV in names:
            say(f"paper003: {title}: {OPENCV} (row {len(names)} of {len(names)})")
            try:
                add_opencv(lineup, network, args.threads, images)
            except Exception as error:  # its check is a process, which may crash
                lineup.notes[OPENCV] = describe_error(error)
        say(f"paper003: {title}: {len(lineup.chains)} rows in turn, {args.runs} rounds")
        times = _measure(lineup, images[0], args.runs, args.slow_runs)
        rows = describe_rows(times, lineup.shown, lineup.notes, names)
    return {"source": network.model.source, "input": list(network.model.input_shape), "rows": rows}


class _AsItIs:
    """Store whose graph counts as optimised already: ONNX Runtime leaves it as it is."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def load(self) -> bytes:
        """The graph as it was exported."""
        return self._part.onnx_model()

    def store(self, data: bytes) -> None:
        """Store nothing: there is nothing that was compiled."""


def open_unoptimised(threads: int, part: Part) -> OnnxRuntimeRunner:
    """Open a session of ONNX Runtime that optimises nothing (`ORT_DISABLE_ALL`)."""
    return OnnxRuntimeRunner(part, "fp32", threads, _AsItIs(part))


def _measure(
    lineup: Lineup, image: npt.NDArray[np.float32], runs: int, slow_runs: int
) -> dict[str, Times]:
    """Measure all in turn; the slow ones stop early, since they would take most of an hour."""
    first = min(runs, slow_runs)
    # All have run before, on the frames.
    times = lineup.measure(image, budget_s=0.0, least=first, most=first, warm_up=1)
    fast = [name for name, taken in times.items() if quantile_ms(taken, 0.5) <= SLOW_MS]
    left = runs - first
    if left and fast:
        more = lineup.measure(image, fast, budget_s=0.0, least=left, most=left, warm_up=0)
        times |= {name: np.concatenate([times[name], taken]) for name, taken in more.items()}
    return times


def describe_rows(
    times: Mapping[str, Times],
    shown: Mapping[str, Shown],
    notes: Mapping[str, str],
    names: Sequence[str] = ROWS,
) -> list[dict[str, Any]]:
    """Describe the rows of these names; one that failed has no times."""
    rows = []
    for name in names:
        row: dict[str, Any] = {"row": name, "note": notes.get(name, ""), "fault": ""}
        if name in times:
            row["mean_ms"] = round(float(times[name].mean()) * 1e-6, 3)
            row["runs"] = len(times[name])
            row |= report_figures(times[name], shown[name], shown[REFERENCE], 3)
            row["fault"] = _find_fault(name, row, shown)
            medians = {other: quantile_ms(taken, 0.5) for other, taken in times.items()}
            bases = {"unoptimised": UNOPTIMISED.get(name), "default": DEFAULT, "opencv": OPENCV}
            for key, other in bases.items():
                ratio = None if other is None else _divide(medians.get(other), medians[name])
                row[f"times_faster_than_{key}"] = None if ratio is None else round(ratio, 3)
        rows.append(row)
    return rows


def _find_fault(name: str, row: Mapping[str, Any], shown: Mapping[str, Shown]) -> str:
    if name not in SHORT_TYPES:
        return shown[name].find_fault(shown[REFERENCE])
    if not all(np.isfinite(array).all() for found in shown[name].outputs for array in found):
        return "a value is not finite"
    agreement = row["agreement"]
    if agreement is None:
        return "agreement unknown: the full network finds nothing"
    return "" if agreement >= AGREEMENT_BAR else f"agreement {agreement:.3f}"


# -- accuracy ------------------------------------------------------------------------------------


def measure_amp(
    name: str,
    part: Part,
    compiler: Compiler,
    threads: int,
    scenes: int,
    progress: Progress = ignore_progress,
) -> dict[str, Any]:
    """Compare a built-in network in FP32 (torch) and in AMP against ground truth.

    AMP is computed by TVM with the tuned kernels; without them, by ONNX Runtime on the same
    coloured graph, which rounds to FP16 in the same places; ``computed_by`` is the one used.

    Returns ``fp32`` and ``amp``, mAP@0.5 or mIoU in [0, 1], and ``points_lost``, in hundredths; or
    the reason as ``note``.
    """
    result: dict[str, Any] = {"metric": METRICS[name], "scenes": scenes}
    with ExitStack() as stack:
        try:
            runner, result["computed_by"] = _open_amp(part, compiler, threads)
            stack.callback(runner.close)

            def run_amp(image: torch.Tensor) -> tuple[torch.Tensor, ...]:
                outputs = runner.to_host(runner.run([image.numpy()]))
                return tuple(torch.from_numpy(array.copy()) for array in outputs)

            key = cast(builtin.BuiltinName, name)
            networks: dict[str, Callable[[torch.Tensor], Any]] = {
                "fp32": builtin.load(key),
                "amp": run_amp,
            }
            figures = compare_accuracy(
                key, networks, scenes,
                lambda done, total: progress("accuracy of AMP", done, total),
            )  # fmt: skip
        except Exception as error:  # TVM's errors have no class in common
            return {**result, "note": f"{type(error).__name__}: {error}"[:300]}
    lost = 100.0 * (figures["fp32"] - figures["amp"])
    result |= {key: round(value, 5) for key, value in figures.items()}
    return {**result, "points_lost": round(lost, 3)}


def _open_amp(part: Part, compiler: Compiler, threads: int) -> tuple[Runner, str]:
    try:
        runner, state = compiler.compile_tuned("fp16", part)
    except ModelError as error:
        onnx = convert_to_fp16(fold_norms(part.onnx_model())).onnx
        mixed: Any = SimpleNamespace(
            name=f"{part.name} (AMP)", input_shapes=part.input_shapes, onnx_model=lambda: onnx,
            graph_hash=part.graph_hash, torch_module=part.torch_module,
        )  # fmt: skip
        return OnnxRuntimeRunner(
            mixed, "fp32", threads
        ), f"onnxruntime on the graph of AMP ({error})"
    return runner, f"tvm, {state.tuned} of {state.kernels} kernels tuned"


# -- bars and tables -----------------------------------------------------------------------------


def judge(result: Mapping[str, Any], barred: Mapping[str, bool]) -> dict[str, bool | None]:
    """Judge which bars were met, by bar in words; None if there was nothing to compare with.

    `barred` are the networks with bars of speed.
    """
    plain, opencv, minutes, points = BARS.values()
    spent = _count_minutes(result)
    reached: dict[str, bool | None] = {
        f"tuning took at most {minutes:g} minutes": spent <= minutes if spent else None
    }
    for name in filter(barred.__getitem__, result["models"]):
        rows = {row["row"]: row for row in result["models"][name]["rows"]}
        tuned = rows[TUNED]
        ran = "p50_ms" in tuned
        faster = {
            key: tuned.get(f"times_faster_than_{key}") or 0.0 for key in ("default", "opencv")
        }
        reached[f"{name}: tuned at least {plain:g} x TVM's default"] = (
            ran and faster["default"] >= plain
        )
        # Nothing to compare with if OpenCV's result is wrong, or there is none.
        reached[f"{name}: tuned faster than OpenCV DNN"] = (
            None if ran and "p50_ms" not in rows[OPENCV] else ran and faster["opencv"] > opencv
        )
        reached[f"{name}: tuned computes what torch does"] = ran and not tuned["fault"]
    for name, found in result["accuracy"].items():
        aim = f"{name}: AMP loses at most {points:g} points"
        reached[aim] = None if "note" in found else found["points_lost"] <= points
    return reached


def _count_minutes(result: Mapping[str, Any]) -> float:
    return float(sum(entry["seconds"] for entry in result["tuning"].values())) / 60.0


def report(result: Mapping[str, Any]) -> Report:
    """Report tuning, a table for each network, the paper's figures, accuracy, and the bars."""
    parts: list[str | Table] = [
        f"{result['target']}: {_count_minutes(result):.1f} minutes of tuning, "
        f"{result['minutes']:g} allowed"
        if result["tuning"]
        else f"{result['target']}: nothing is tuned"
    ]
    if result["tuning"]:
        parts.append(
            tabulate(
                flatten(result["tuning"]),
                "tuning=name",
                ("share", lambda row: f"{result['shares'][row['name']]:.0%}"),
                ("minutes", lambda row: format_figure(row["seconds"] / 60.0, 1)),
                (
                    "kernels",
                    lambda row: f"{row['tuned']} of {row['kernels']}" if "tuned" in row else None,
                ),
                "trials",
                ("", lambda row: row.get("note", "")),
            )
        )
    parts += report_models(
        result["models"],
        lambda found: "",
        "row, mean ms=mean_ms:.2f, p50 ms=p50_ms:.2f, p99 ms=p99_ms:.2f, runs",
        "x unoptimised=times_faster_than_unoptimised:.2f",
        "x default=times_faster_than_default:.2f, x OpenCV=times_faster_than_opencv:.2f",
        "error=relative_error:.0e, agreement:.3f",
        ("", lambda row: "; ".join(filter(None, (row["note"], row["fault"])))),
    )
    if result["models"]:
        parts += [f"the paper's: {PAPER['where']}", _compare_paper(result)]
    if result["accuracy"]:
        parts.append(
            tabulate(
                flatten(result["accuracy"], "accuracy of AMP"),
                "accuracy of AMP, metric, scenes, fp32:.4f, AMP=amp:.4f",
                "points lost=points_lost:.2f",
                ("computed by", lambda row: row.get("note") or row["computed_by"]),
            )
        )
    words = {True: "yes", False: "NO", None: "-"}
    parts.append("\n".join(f"{words[done]:4s}{aim}" for aim, done in result["reached"].items()))
    plain, opencv, minutes, points = BARS.values()
    bars = (
        f"tuned >= {plain:g} x TVM's default and > {opencv:g} x OpenCV, in {minutes:g} minutes; "
        f"AMP loses <= {points:g} points"
    )
    return [*parts, say_bars(bars, result["passed"])]


def _compare_paper(result: Mapping[str, Any]) -> Table:
    """Compare the paper's figures with the same ones of this run."""
    rows = []
    for name, found in result["models"].items():
        times = {row["row"]: row.get("mean_ms") for row in found["rows"]}
        plain, default, both = times.get(PLAIN), times.get(DEFAULT), times.get(BOTH)
        amp, tuned = times.get(AMP), times.get(TUNED)
        figures = (
            (both, 2),
            (PAPER["tvm_tuned_amp_ms"].get(name), 2),
            (times.get("tensorrt-fp16"), 2),
            (PAPER["tensorrt_fp16_ms"].get(name), 2),
            (_find_saved(plain, default), 0),
            (_find_saved(times.get(ORT_PLAIN), times.get(ORT)), 0),
            (_find_saved(plain, amp), 0),
            (_find_saved(plain, tuned), 0),
            (_find_share(plain, default, tuned), 0),
            (_divide(plain, both), 1),
            (_divide(default, both), 1),
            (_divide(times.get(OPENCV), both), 2),
            (_find_saved(tuned, both), 0),
            (_find_saved(default, amp), 0),
            (PAPER["amp_faster_percent"].get(name), 0),
        )
        rows.append([name, *(format_figure(value, digits) for value, digits in figures)])
    ranges = (
        "graph_and_amp_save_percent", "graph_and_tuning_save_percent", "share_of_tuning_percent",
        "both_times_faster_than_unoptimised", "", "both_times_faster_than_opencv",
        "amp_saves_tuned_percent",
    )  # fmt: skip
    shown = [" to ".join(map(str, PAPER[key])) if key else "" for key in ranges]
    rows.append(["the paper", *[""] * 6, *shown, "", ""])
    header = (
        "mean ms, both, paper, TensorRT fp16, paper, graph saves %, of ONNX Runtime %, "
        "graph and AMP %, graph and tuning %, share of tuning %, both x unoptimised, "
        "both x default, both x OpenCV, AMP saves tuned %, AMP saves default %, paper"
    )
    return Table(header.split(", "), rows)


def _find_share(plain: float | None, default: float | None, tuned: float | None) -> float | None:
    """Find the share of tuning in the time that the graph's optimisation and tuning save."""
    if plain is None or default is None or tuned is None:
        return None
    return _divide(100.0 * (default - tuned), plain - tuned)


def _divide(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _find_saved(before: float | None, after: float | None) -> float | None:
    share = _divide(after, before)
    return None if share is None else 100.0 * (1.0 - share)
