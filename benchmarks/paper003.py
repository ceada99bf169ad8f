"""The table of paper 003: TVM as it comes, with AMP, tuned, and both, beside other back ends.

The paper optimises ResNet50, MobileNetV2 and EfficientNetV2-S with TVM for a Jetson Xavier: mixed
precision (AMP), tuned schedules, and both. Here the same networks at 224 x 224 (of torchvision,
with random weights) and the built-in ones, on this machine, with a stated time to tune. All rows
of a network take turns, round by round, in one process; a mean is that of --runs runs, as in the
paper, which has 50. Rows that take more than a second have --slow-runs. With --databases what
tuning finds is kept, and a run goes on where the one before was stopped: the minutes are those of
all runs together.

Passes when tuned kernels are 5 times faster than TVM's default and faster than OpenCV DNN, for
MobileNetV2 and the built-in networks; when tuning took 60 minutes at most, all in all; and when
AMP costs the built-in networks 0.3 points of mAP@0.5 or mIoU at most, against ground truth.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.paper003_networks import NETWORKS
from benchmarks.paper003_networks import Network as BenchNetwork
from benchmarks.paper003_report import BARS, PAPER, format_table, judge
from jetson_dnn_rt.cli.options import parse_count
from jetson_dnn_rt.cli.progress import PhaseProgress
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.running.network import Network
from jetson_dnn_rt.variants.spec import FULL

if TYPE_CHECKING:
    from benchmarks.paper003_tuning import DatabaseFolder, Job
    from jetson_dnn_rt.tvm.target import TvmTarget

__all__ = ["add_arguments", "format_table", "run"]

MINUTES = 60.0
RUNS = 50
QUICK: dict[str, Any] = {"runs": 3, "slow_runs": 2, "scenes": 4}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    add = parser.add_argument
    add("--models", nargs="+", choices=NETWORKS, metavar="NAME", default=list(NETWORKS),
        help=f"some of {', '.join(NETWORKS)} (default all)")  # fmt: skip
    add("--minutes", type=float, default=MINUTES, metavar="M",
        help=f"to tune, for all networks and all runs together (default {MINUTES:g})")  # fmt: skip
    add("--trials", type=parse_count, default=1000, metavar="N",
        help="most candidates of one kernel (default 1000, as many as in the paper)")  # fmt: skip
    add("--databases", type=Path, metavar="DIR",
        help="where the results of tuning are kept (default: nowhere)")  # fmt: skip
    add("--threads", type=parse_count, default=1, metavar="N",
        help="of one run, for all back ends (default 1)")  # fmt: skip
    add("--runs", type=parse_count, default=RUNS, metavar="N",
        help=f"timed runs of each row (default {RUNS})")  # fmt: skip
    add("--slow-runs", type=parse_count, default=5, metavar="N",
        help="of rows that take more than a second (default 5)")  # fmt: skip
    add("--scenes", type=parse_count, default=200, metavar="N",
        help="held-out scenes for the accuracy of AMP (default 200)")  # fmt: skip
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--tune-only", action="store_true", help="tune, measure nothing")
    only.add_argument("--no-tuning", action="store_true", help="measure with what is there")
    add("--quick", action="store_true", help="few runs and scenes, nothing is judged")


def run(
    args: argparse.Namespace, networks: Mapping[str, BenchNetwork] = NETWORKS
) -> dict[str, Any]:
    """Tune and measure the networks.

    Parameters
    ----------
    args : argparse.Namespace
        Of `add_arguments`.
    networks : mapping of str to Network
        What there is to choose from.

    Returns
    -------
    dict
        ``tuning`` by network and precision, ``models`` with their rows, ``accuracy`` of AMP,
        ``reached`` by bar, ``passed``.

    Raises
    ------
    BackendUnavailableError
        When TVM is missing.
    ConfigurationError
        When an argument is out of range.
    """
    from jetson_dnn_rt.backends.registry import inspect_backend

    info = inspect_backend("tvm")
    if not info.available:
        raise BackendUnavailableError(f"back end tvm: {info.reason}; {info.fix}")
    _check(args)
    if args.quick:
        vars(args).update(QUICK)
    with ExitStack() as stack:
        return _run(args, {name: networks[name] for name in args.models}, stack)


def _check(args: argparse.Namespace) -> None:
    if not 0.0 <= args.minutes <= 24 * 60.0:
        raise ConfigurationError(f"--minutes must be in [0, 1440]: {args.minutes}")
    if args.databases is None and (args.tune_only or args.no_tuning):
        raise ConfigurationError("--tune-only and --no-tuning need --databases DIR")


def _run(
    args: argparse.Namespace, networks: Mapping[str, BenchNetwork], stack: ExitStack
) -> dict[str, Any]:
    from benchmarks.paper003_tuning import DatabaseFolder, plan_jobs, tune_all
    from jetson_dnn_rt.tvm.target import find_local_target

    temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paper003-")))
    target = find_local_target(args.threads)
    folder = DatabaseFolder(args.databases or temporary / "databases", target)
    jobs = plan_jobs(networks)
    loader = _Loader(networks, Library(temporary / "library"))
    minutes = 0.0 if args.no_tuning else args.minutes
    result: dict[str, Any] = {
        "threads": args.threads,
        "target": target.text,
        "runs": args.runs,
        "minutes": args.minutes,
        "shares": {job.name: round(job.share, 4) for job in jobs},
        "quick": args.quick,
        "paper": PAPER,
        "bars": BARS,
        "tuning": tune_all(
            jobs,
            lambda name: loader.load(name).part,
            folder,
            target,
            minutes=minutes,
            trials=args.trials,
        ),
        "models": {},
        "accuracy": {},
    }
    if not args.tune_only:
        _measure_all(args, networks, loader, jobs, folder, target, result)
    result["reached"] = judge(result, {name: entry.barred for name, entry in networks.items()})
    judged = not (args.quick or args.tune_only)
    result["passed"] = all(done is not False for done in result["reached"].values())
    result["passed"] = result["passed"] if judged else None
    return result


def _measure_all(
    args: argparse.Namespace,
    networks: Mapping[str, BenchNetwork],
    loader: _Loader,
    jobs: list[Job],
    folder: DatabaseFolder,
    target: TvmTarget,
    result: dict[str, Any],
) -> None:
    from benchmarks.paper003_accuracy import measure_amp
    from benchmarks.paper003_rows import Compiler, measure_network

    for name, entry in networks.items():
        loaded = loader.load(name)
        compiler = Compiler(
            target,
            {job.precision: (job, folder) for job in jobs if job.network == name},
        )
        result["models"][name] = measure_network(
            loaded.network,
            loaded.frames,
            compiler,
            threads=args.threads,
            runs=args.runs,
            slow_runs=args.slow_runs,
            say=lambda line, name=name: say(f"{name}: {line}"),  # type: ignore[misc]
        )
        if entry.builtin:
            with PhaseProgress() as progress:
                progress.begin(f"paper003: {name}")
                result["accuracy"][name] = measure_amp(
                    entry.builtin, loaded.part, compiler, args.threads, args.scenes, progress
                )


@dataclass(frozen=True)
class _Loaded:
    """A network, and what every back end gets of it."""

    model: Model
    frames: list[Frame]
    network: Network
    part: Part


class _Loader:
    """Loads each network once, exports it once."""

    def __init__(self, networks: Mapping[str, BenchNetwork], library: Library) -> None:
        self._networks, self._library = networks, library
        self._loaded: dict[str, _Loaded] = {}

    def load(self, name: str) -> _Loaded:
        """The network of that name."""
        if name not in self._loaded:
            say(f"{name}: loading")
            model, frames = self._networks[name].load()
            network = Network(model, 1, self._library)
            part = network.pieces(FULL, 1)[0].part
            self._loaded[name] = _Loaded(model, frames, network, part)
        return self._loaded[name]


def say(text: str) -> None:
    """Write a line of progress."""
    print(f"paper003: {text}", file=sys.stderr, flush=True)
