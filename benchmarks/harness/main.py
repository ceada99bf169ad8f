# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Run one of the benchmarks; without a name, list them.

A benchmark is a module of `benchmarks`, or the module ``bench`` of a folder there, with
``add_arguments(add)``, ``run(args) -> dict`` (``passed`` is a `tables.Verdict`) and
``report(result)``, and it is named in `rooms`. Exit code 1 when a bar was not met; one that is not
decided says so, and is none. With ``rejudge(result)``, which returns what ``passed`` should be, a
test repeats the verdict of every committed result. During a long run ``args.keep(result)`` writes
what there is so far, so that a forced end loses little.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.harness.options import Options
from benchmarks.harness.origin import KEY, describe_code
from benchmarks.harness.parts import PLAYED, describe_parts, read_result
from benchmarks.harness.processes import Neighbours
from benchmarks.harness.tables import to_text, write
from jetson_dnn_rt.cli.environment import prepare_environment
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.runtime.realtime import set_library_defaults

BENCHMARKS = {
    "accuracy": "mAP and mIoU of the built-in models on held-out scenes",
    "batching": "one model on several cameras: batches against the same frames one by one",
    "backends": "the same networks on every back end, whole and in stages, and on OpenCV DNN",
    "boundary": "what a worker does between two stages, part by part",
    "cancel": "how soon a run that is under way ends, and what that is worth under overload",
    "coordinate": "every static variant beside the policies: which load needs a coordinator",
    "dashcam": "a real drive through YOLOX and the segmenter: frames met, boxes correct",
    "decide": "cost of a decision of each policy, over all clock configurations",
    "engine": "cost of the engine alone, compiled and as Python",
    "evt": "bounds of the worst case against laws whose quantiles are known",
    "export_c": "exported C sources against the same kernels under TVM's runtime, in turn",
    "fidelity": "a recorded run against its replay in the simulator: misses and p99",
    "fronts": "policies at equal accuracy and energy in drawn scenarios; best static, and a bound",
    "gpu": "plain torch, CUDA graphs and TensorRT, whole and in stages, on a CUDA GPU",
    "inside": "time of a network inside the node against its bare back end, in turn",
    "loadgen": "MLPerf Automotive's LoadGen asks 15 times a second, over ROS: VALID or not",
    "multi_dnn": "many DNNs at once: processes, the paper's queue, ours; as one table",
    "overhead": "overhead of the package on a frame, composed and between processes",
    "paper000": "ResNet, GoogLeNet, DeepLabv3, YOLO and ours: best, worst, tail, layers",
    "paper003": "TVM by default, with AMP, tuned, both; beside the other back ends and the paper",
    "paper004": "NeuOS in two reconstructions beside the paper's figures: p99, relations, memory",
    "policies": "all policies on simulated boards: misses, accuracy, energy, and the bars",
    "recovery": "the built-in models at half of their operations: plain, data-aware, recovered",
    "replay": "a long bag through evaluate: no frame lost, real time against simulated",
    "scale": "1 to 16 tasks: what scheduling costs a stage, and whether the met frames collapse",
    "start": "from the start to the first result, by part: a first and a second one",
    "streaming": "results judged by the truth when they are published, over rates and loads",
    "switching": "cost of a change of variant between two stages of a frame",
    "overload": "against the usual rclpy node, under less and more work than the machine can do",
    "threads": "every split of the cores, tried and played in turn: whether `auto` takes the best",
    "trace": "overhead of the trace on a job, with and without in turn",
    "tracking": "track ids: cost on a frame, and objects that change theirs over skipped frames",
    "tucker": "decomposed networks: reductions met, error against one equal ratio, time",
    "zero_copy": "from message to first layer: bytes copied, time, share of the frame",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m benchmarks``; an error is one line on stderr."""
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
    """Run a benchmark, print its table or JSON, and write the JSON if requested."""
    if not given or given[0] in ("-h", "--help"):
        for name, summary in BENCHMARKS.items():
            print(f"{name.replace('_', '-'):10s} {summary}")
        print("\n`python -m benchmarks NAME --help` lists the options of one.")
        return 0
    name = given[0].replace("-", "_")
    if name not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise ConfigurationError(f"there is no benchmark {name!r}, but {known}")
    prepare_environment()
    module = load(name)
    args = parse(module, given[1:], name.replace("_", "-"))
    command = shlex.join(["python", "-m", "benchmarks", *given])
    machine = {**describe_machine(), "command": command}
    code = describe_code(name)  # before the run: files may change while it takes its time
    neighbours = Neighbours()
    args.earlier = read_result(getattr(args, "resume", None))

    def finish(measured: Mapping[str, Any]) -> dict[str, Any]:
        machine["other_cores"] = round(neighbours.find_cores(), 2)
        rest = {KEY: code, "command": command, "machine": machine}
        result = {"benchmark": name, **measured, **rest}
        if PLAYED in measured:
            result["parts"] = describe_parts(args.earlier, result)
        if args.output is not None:
            write(result, args.output)
        return result

    args.keep = finish
    result = finish(module.run(args))
    print(json.dumps(result) if args.json else to_text(module.report(result)))
    return 1 if result["passed"] is False else 0


def load(name: str) -> ModuleType:
    """Import a benchmark: ``benchmarks.NAME``, or ``benchmarks.NAME.bench`` of a folder."""
    spec = importlib.util.find_spec(f"benchmarks.{name}")
    assert spec is not None
    folder = spec.submodule_search_locations is not None
    return importlib.import_module(f"benchmarks.{name}" + (".bench" if folder else ""))


def parse(module: ModuleType, options: Sequence[str], name: str = "") -> argparse.Namespace:
    """Parse the options of a benchmark, and those that all benchmarks have."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(Options(parser))
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON there too")
    parser.set_defaults(keep=lambda measured: None, earlier=None)
    return parser.parse_args(options)
