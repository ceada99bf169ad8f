"""Many DNNs at once, against a process for each: the comparison of a paper, as one command.

"Multi-DNN Acceleration Techniques for Embedded Systems with Tucker Decomposition and
Hidden-layer-based Parallel Processing" (JKICE 26(6), 2022), with two modes more:

    a  the original networks, each in a process of its own
    b  decomposed by Tucker, each in a process
    c  decomposed, in one process with the paper's FIFO queue of jobs and a stream per thread
    d  the original ones in that queue
    e  this package: the variants that were measured fastest, CUDA graphs, the executor with EDF

b against a is what Tucker brings, d against a what one process brings, c both, e what is here.
One row for each network, in so many instances, and one for a mix of them. In each mode every
instance has one frame in flight all the time; a time goes from the input on the host to the
outputs on the host, waiting included. All modes take turns, round by round, in one run. Outputs
are compared with those of fp32 on the CPU. Modes a to d run torch as it comes, kernel by kernel;
CUDA MPS, which lets processes share a GPU and which the paper's board lacks, is not used.

Needs torch, torchvision and numpy; downloads nothing: the weights are random. With --input 32, the
size of the paper's CIFAR-10, networks have ten classes, and Inception v3 gets 75 x 75, its least.
On a machine without a GPU it runs smaller networks in smaller numbers and says so: the bars are
about GPUs, and there the only one is that ours is no slower than processes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.multi_dnn_figures import MIX, format_row, format_table, judge
from jetson_dnn_rt.errors import ConfigurationError

__all__ = ["add_arguments", "format_table", "run"]

GPU_MODELS = ("vgg16", "resnet152", "inception_v3", "regnet_y_32gf")
CPU_MODELS = ("builtin:detector", "builtin:segmenter", "mobilenet_v3_small")
GPU_MIX, GPU_INSTANCES, CPU_INSTANCES = (3, 1, 2, 2), 8, 2
JOBS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    parser.add_argument(
        "--models", type=_list_words, metavar="NAME,...",
        help=f"of torchvision, or builtin:detector, builtin:segmenter (default on a GPU: "
        f"{','.join(GPU_MODELS)}; else: {','.join(CPU_MODELS)})",
    )  # fmt: skip
    parser.add_argument(
        "--instances", type=int, metavar="N",
        help=f"of each model in its row (default {GPU_INSTANCES} on a GPU, else {CPU_INSTANCES})",
    )  # fmt: skip
    parser.add_argument(
        "--mix", type=_list_counts, metavar="N,...",
        help="instances of each model in the last row, in their order; 0 = no such row (default "
        "3,1,2,2 for the paper's networks, else 1 of each)",
    )  # fmt: skip
    parser.add_argument(
        "--input", type=int, metavar="PIXELS",
        help="side of the networks' input (default on a GPU 32, as in the paper, else 224)",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=int, default=JOBS, metavar="K",
        help=f"runs of layers into which modes c and d cut a network (default {JOBS})",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=float, default=7.0, metavar="M",
        help="for everything: each row measures until its share is over (default 7)",
    )  # fmt: skip
    parser.add_argument(
        "--window", type=float, default=0.7, metavar="S",
        help="seconds of one mode in one round (default 0.7)",
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto",
        help="default auto: cuda where torch sees a device",
    )  # fmt: skip
    parser.add_argument(
        "--backends", type=_list_words, metavar="NAME,...",
        help="that mode e tries (default on a GPU torch, since TensorRT builds for minutes; else "
        "openvino,onnxruntime,torch)",
    )  # fmt: skip
    parser.add_argument(
        "--process-threads", type=int, metavar="N",
        help="of torch in each process on a CPU (default: the cores shared out, at least 1)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> dict[str, object]:
    """Measure all rows; each is printed, and written where asked, as soon as it is done.

    Returns
    -------
    dict
        ``rows``, what they were measured with, and ``passed``.

    Raises
    ------
    ConfigurationError
        When an argument is out of range, or there is no such network.
    BackendUnavailableError
        When torchvision is missing.
    """
    end_s = time.monotonic() + 60.0 * args.minutes
    for key in ("input", "jobs", "minutes", "window", "instances", "process_threads"):
        value = getattr(args, key)
        if value is not None and value <= 0:
            raise ConfigurationError(f"--{key.replace('_', '-')} must be > 0: {value}")
    from benchmarks.multi_dnn_networks import NetworkSpec
    from benchmarks.multi_dnn_rows import Bench
    from jetson_dnn_rt.backends.torch import choose_device

    device = choose_device() if args.device == "auto" else args.device
    if device == "cuda" and choose_device() != "cuda":
        raise ConfigurationError("--device cuda: torch sees no CUDA device")
    names = args.models or list(GPU_MODELS if device == "cuda" else CPU_MODELS)
    instances = args.instances or (GPU_INSTANCES if device == "cuda" else CPU_INSTANCES)
    counts = args.mix or (list(GPU_MIX) if tuple(names) == GPU_MODELS else [1] * len(names))
    if sum(counts) and len(counts) != len(names):
        raise ConfigurationError(f"--mix needs {len(names)} numbers, one for each model: {counts}")
    side = args.input or (32 if device == "cuda" else 224)
    specs = [NetworkSpec.of(name, side) for name in names]
    plan = [(name, [spec] * instances) for name, spec in zip(names, specs, strict=True)]
    mix = [spec for spec, count in zip(specs, counts, strict=False) for _ in range(count)]
    if mix and len(names) > 1:
        plan.append((MIX, mix))
    result: dict[str, Any] = {
        "device": device,
        "instances": instances,
        "mix": counts,
        "input": side,
        "jobs": args.jobs,
        "window_s": args.window,
        "mps": "not used",
        "rows": [],
        "passed": None,
    }
    if device != "cuda":
        _say("no GPU: smaller networks in smaller numbers; the paper's comparison is about GPUs")
    with tempfile.TemporaryDirectory() as folder, Bench(device, args, Path(folder)) as bench:
        result["settings"] = bench.describe()
        for index, (name, row) in enumerate(plan):
            now_s = time.monotonic()
            share_s = (end_s - now_s) / (len(plan) - index)
            _say(f"{name}: {len(row)} networks, {share_s:.0f} s")
            found = bench.measure(name, row, now_s + share_s)
            result["rows"].append(found)
            result["passed"] = judge(result)
            _keep(result, found, getattr(args, "output", None))
    return result


def _keep(result: dict[str, Any], row: dict[str, Any], output: Path | None) -> None:
    """Show and write what there is, so that an end by force loses no row."""
    print(format_row(row, str(result["device"])), file=sys.stderr, flush=True)
    print(json.dumps({"row": row}), file=sys.stderr, flush=True)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"benchmark": "multi_dnn", **result, "complete": False}, indent=1)
        output.write_text(text + "\n", encoding="utf-8")


def _say(text: str) -> None:
    print(f"multi-dnn: {text}", file=sys.stderr, flush=True)


def _list_words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise argparse.ArgumentTypeError("needs at least one name")
    return list(dict.fromkeys(words))


def _list_counts(text: str) -> Sequence[int]:
    counts = [int(word) for word in text.split(",")]
    if min(counts) < 0:
        raise argparse.ArgumentTypeError(f"counts must be >= 0: {text}")
    return counts
