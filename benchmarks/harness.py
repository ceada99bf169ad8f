"""Run one of the benchmarks; without a name, list them.

Benchmarks state their bars and whether they were met: exit code 1 when one was not.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from jetson_dnn_rt.cli.environment import prepare_environment
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.runtime.realtime import set_library_defaults

BENCHMARKS = {
    "accuracy": "mAP and mIoU of the built-in models on held-out scenes",
    "batching": "one model on several cameras: batches against the same frames one by one",
    "backends": "the same networks on every back end, whole and in stages, and on OpenCV DNN",
    "coordinate": "two networks and a background load that comes and goes: policies in turn",
    "dashcam": "a real drive through YOLOX and the segmenter: frames met, boxes as they should be",
    "decide": "what a decision of each policy costs, over all clock configurations",
    "evt": "bounds of the worst case against laws whose quantiles are known",
    "export_c": "exported C sources against the same kernels under TVM's runtime, in turn",
    "fidelity": "a recorded run against its replay in the simulator: misses and p99",
    "gpu": "torch as it comes, CUDA graphs and TensorRT, whole and in stages, on a CUDA GPU",
    "multi_dnn": "many DNNs at once: processes, the paper's queue, ours; as one table",
    "overhead": "what the package adds to a frame, composed and between processes",
    "paper000": "ResNet, GoogLeNet, DeepLabv3, YOLO and ours: best, worst, tail, layers",
    "paper003": "TVM as it comes, with AMP, tuned, both; beside the other back ends and the paper",
    "policies": "all policies on simulated boards: misses, accuracy, energy, and the bars",
    "recovery": "the built-in models at half of their operations: plain, data-aware, recovered",
    "replay": "a long bag through evaluate: no frame lost, real time against simulated",
    "scale": "1 to 16 tasks: what scheduling costs a stage, and whether the met frames collapse",
    "switching": "what a change of variant between two stages of a frame costs",
    "overload": "against the usual rclpy node, with 1.5 to 3 times the work the machine can do",
    "threads": "every split of the cores, tried and played in turn: whether `auto` takes the best",
    "trace": "what the trace adds to a job, with and without in turn",
    "tucker": "decomposed networks: reductions met, error against one equal ratio, time",
    "zero_copy": "from message to first layer: bytes copied, time, share of the frame",
}
"""Modules of `benchmarks`, each with ``add_arguments(parser)``, ``run(args) -> dict``
(``passed`` is True, False, or None without a bar) and ``format_table(result) -> str``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m benchmarks``; whatever goes wrong is one line on stderr."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    set_library_defaults()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        return run_benchmark(given)
    except JetsonDnnRtError as error:
        print(f"benchmarks: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, ConfigurationError) else 1
    except KeyboardInterrupt:
        print("benchmarks: error: interrupted", file=sys.stderr)
        return 130


def run_benchmark(given: Sequence[str]) -> int:
    """Run a benchmark, print its table or JSON, keep the JSON where asked."""
    if not given or given[0] in ("-h", "--help"):
        return _list_benchmarks()
    name, options_given = given[0].replace("-", "_"), given[1:]
    if name not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise ConfigurationError(f"there is no benchmark {name!r}, but {known}")
    prepare_environment()
    module = importlib.import_module(f"benchmarks.{name}")
    options = _parse(module, name, options_given)
    result = {"benchmark": name, **module.run(options), "machine": describe_machine()}
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result) if options.json else module.format_table(result))
    return 1 if result["passed"] is False else 0


def _parse(module: ModuleType, name: str, options: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {_shown(name)}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON there too")
    return parser.parse_args(options)


def _shown(name: str) -> str:
    """``multi_dnn`` is a module, ``multi-dnn`` its name on the command line."""
    return name.replace("_", "-")


def _list_benchmarks() -> int:
    for name, summary in BENCHMARKS.items():
        print(f"{_shown(name):10s} {summary}")
    print("\n`python -m benchmarks NAME --help` lists the options of one.")
    return 0
