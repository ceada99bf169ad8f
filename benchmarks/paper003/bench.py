"""The table of paper 003: TVM as it comes, with AMP, tuned, and both, beside other back ends.

The paper optimises ResNet50, MobileNetV2 and EfficientNetV2-S with TVM for a Jetson Xavier: mixed
precision (AMP), tuned schedules, and both. Here the same networks at 224 x 224 (of torchvision,
with random weights) and the built-in ones, on this machine, with a stated time to tune. All rows
of a network take turns, round by round, in one process; a mean is that of --runs runs, as in the
paper, which has 50. Rows that take more than a second have --slow-runs. With --databases the
results of tuning are kept, and a run continues where the one before stopped: the minutes are those
of all runs together.

Passes when tuned kernels are 5 times faster than TVM's default and faster than OpenCV DNN, for
MobileNetV2 and the built-in networks; when tuning took 60 minutes at most, all in all; and when
AMP costs the built-in networks 0.3 points of mAP@0.5 or mIoU at most, against ground truth.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.options import Options, echo
from benchmarks.harness.tables import say
from benchmarks.paper003.report import BARS, PAPER, judge, report
from jetson_dnn_rt.cli.progress import PhaseProgress
from jetson_dnn_rt.demo.builtin import BuiltinName
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs
from jetson_dnn_rt.variants.running.network import Network
from jetson_dnn_rt.variants.spec import FULL

__all__ = ["NETWORKS", "Entry", "add_arguments", "report", "run"]

SIZE, FRAMES = (224, 224), 4
QUICK: dict[str, Any] = {"runs": 3, "slow_runs": 2, "scenes": 4}


@dataclass(frozen=True)
class Entry:
    """A network of the table: how it and frames for it are loaded.

    `shares` of the time to tune are by precision, `barred` says whether it must reach the bars of
    speed, `builtin` names it where there is ground truth.
    """

    load: Callable[[], tuple[Model, list[Frame]]]
    shares: Mapping[str, float]
    barred: bool = False
    builtin: BuiltinName | None = None


def load_torchvision(name: str) -> tuple[Model, list[Frame]]:
    """A network of torchvision at 224 x 224, with random weights that compute as trained ones."""
    from benchmarks.harness.numerics import make_plausible

    frames = list(open_frames("synthetic", FRAMES))
    model = load_model(f"torchvision:{name}", weights="none", input_size=SIZE)
    return make_plausible(model, prepare_inputs(model, frames)), frames


def load_builtin(name: str) -> tuple[Model, list[Frame]]:
    """A built-in network, trained, at its own size."""
    return load_model(f"builtin:{name}"), list(open_frames("synthetic", FRAMES))


def _share(fp32: float, fp16: float) -> dict[str, float]:
    return {"fp32": fp32, "fp16": fp16}


# Those with bars are tuned first; the last one has by far the most kernels.
NETWORKS = {
    "mobilenet_v2": Entry(partial(load_torchvision, "mobilenet_v2"), _share(0.20, 0.04), True),
    "detector": Entry(partial(load_builtin, "detector"), _share(0.12, 0.04), True, "detector"),
    "segmenter": Entry(partial(load_builtin, "segmenter"), _share(0.10, 0.04), True, "segmenter"),
    "resnet50": Entry(partial(load_torchvision, "resnet50"), _share(0.13, 0.04)),
    "efficientnet_v2_s": Entry(partial(load_torchvision, "efficientnet_v2_s"), _share(0.17, 0.12)),
}


def add_arguments(add: Options) -> None:
    """Options of the benchmark."""
    add("--models", list(NETWORKS), "default all", choices=NETWORKS)
    add("--minutes", 60.0, "to tune, for all networks and all runs together", least=0, most=1440)
    add("--trials", 1000, "most candidates of one kernel, as many as in the paper", least=1)
    add("--databases", None, "where the results of tuning are kept", kind=Path, metavar="DIR")
    add("--threads", 1, "of one run, for all back ends", least=1)
    add("--runs", 50, "timed runs of each row", least=1)
    add("--slow-runs", 5, "of rows that take more than a second", least=1)
    add("--scenes", 200, "held-out scenes for the accuracy of AMP", least=1)
    only = add.one_of()
    only("--tune-only", False, "tune, measure nothing")
    only("--no-tuning", False, "measure with what is there")
    add("--quick", False, "few runs and scenes, nothing is judged")


def run(args: argparse.Namespace, networks: Mapping[str, Entry] = NETWORKS) -> dict[str, Any]:
    """Tune and measure the networks; `BackendUnavailableError` when TVM is missing."""
    from jetson_dnn_rt.backends.registry import inspect_backend

    info = inspect_backend("tvm")
    if not info.available:
        raise BackendUnavailableError(f"back end tvm: {info.reason}; {info.fix}")
    if args.databases is None and (args.tune_only or args.no_tuning):
        raise ConfigurationError("--tune-only and --no-tuning need --databases DIR")
    if args.quick:
        vars(args).update(QUICK)
    with ExitStack() as stack:
        return _run(args, {name: networks[name] for name in args.models}, stack)


def _run(
    args: argparse.Namespace, networks: Mapping[str, Entry], stack: ExitStack
) -> dict[str, Any]:
    from benchmarks.paper003.rows import Compiler, measure_amp, measure_network
    from benchmarks.paper003.tuning import DatabaseFolder, plan_jobs, tune_all
    from jetson_dnn_rt.tvm.target import find_local_target

    temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paper003-")))
    target = find_local_target(args.threads)
    folder = DatabaseFolder(args.databases or temporary / "databases", target)
    jobs = plan_jobs({name: entry.shares for name, entry in networks.items()})
    library = Library(temporary / "library")

    @functools.cache
    def load(name: str) -> tuple[Network, list[Frame]]:
        say(f"paper003: {name}: loading")
        model, frames = networks[name].load()
        return Network(model, 1, library), frames

    def find_part(name: str) -> Any:
        return load(name)[0].pieces(FULL, 1)[0].part

    result: dict[str, Any] = {
        "threads": args.threads,
        "target": target.text,
        **echo(args, "runs minutes"),
        "shares": {job.name: round(job.share, 4) for job in jobs},
        "quick": args.quick,
        "paper": PAPER,
        "bars": BARS,
        "tuning": tune_all(
            jobs,
            find_part,
            folder,
            target,
            minutes=0.0 if args.no_tuning else args.minutes,
            trials=args.trials,
        ),
        "models": {},
        "accuracy": {},
    }
    for name, entry in {} if args.tune_only else networks.items():
        network, frames = load(name)
        databases = {job.precision: (job, folder) for job in jobs if job.network == name}
        compiler = Compiler(target, databases)
        result["models"][name] = measure_network(name, network, frames, compiler, args)
        if entry.builtin:
            with PhaseProgress() as progress:
                progress.begin(f"paper003: {name}")
                result["accuracy"][name] = measure_amp(
                    entry.builtin, find_part(name), compiler, args.threads, args.scenes, progress
                )
    result["reached"] = judge(result, {name: entry.barred for name, entry in networks.items()})
    passed = all(done is not False for done in result["reached"].values())
    result["passed"] = None if args.quick or args.tune_only else passed
    return result
