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
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.options import Options, read_names
from benchmarks.harness.tables import say, to_text
from benchmarks.multi_dnn.report import MIX, judge, report, report_row
from jetson_dnn_rt.errors import ConfigurationError

__all__ = ["add_arguments", "report", "run"]

GPU_MODELS = ("vgg16", "resnet152", "inception_v3", "regnet_y_32gf")
CPU_MODELS = ("builtin:detector", "builtin:segmenter", "mobilenet_v3_small")
GPU_MIX, GPU_INSTANCES, CPU_INSTANCES = (3, 1, 2, 2), 8, 2


def add_arguments(add: Options) -> None:
    """Options of the benchmark."""
    add(
        "--models", None,
        f"of torchvision, or builtin:detector, builtin:segmenter (default on a GPU: "
        f"{','.join(GPU_MODELS)}; else: {','.join(CPU_MODELS)})",
        kind=read_names, metavar="NAME,...",
    )  # fmt: skip
    add(
        "--instances", None,
        f"of each model in its row (default {GPU_INSTANCES} on a GPU, else {CPU_INSTANCES})",
        kind=int, least=1, metavar="N",
    )  # fmt: skip
    add(
        "--mix", None,
        "instances of each model in the last row, in their order; 0 = no such row (default "
        "3,1,2,2 for the paper's networks, else 1 of each)", kind=_read_counts, metavar="N,...",
    )  # fmt: skip
    add(
        "--input", None,
        "side of the networks' input (default on a GPU 32, as in the paper, else 224)",
        kind=int, least=1, metavar="PIXELS",
    )  # fmt: skip
    add("--jobs", 8, "runs of layers into which modes c and d cut a network", least=1)
    add("--minutes", 7.0, "for everything: each row measures until its share is over", above=0)
    add("--window", 0.7, "seconds of one mode in one round", above=0, metavar="S")
    add(
        "--device", "auto", "auto: cuda where torch sees a device", choices=("auto", "cpu", "cuda")
    )
    add(
        "--backends", None,
        "that mode e tries (default on a GPU torch, since TensorRT builds for minutes; else "
        "openvino,onnxruntime,torch)", kind=read_names, metavar="NAME,...",
    )  # fmt: skip
    add(
        "--process-threads", None,
        "of torch in each process on a CPU (default: the cores shared out, at least 1)",
        kind=int, least=1, metavar="N",
    )  # fmt: skip


def _read_counts(text: str) -> list[int]:
    counts = [int(word) for word in text.split(",")]
    if min(counts) < 0:
        raise argparse.ArgumentTypeError(f"counts must be >= 0: {text}")
    return counts


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all rows; each is printed, and written where asked, as soon as it is done.

    `ConfigurationError` when there is no such network, or the numbers of --mix are not as many;
    `BackendUnavailableError` when torchvision is missing.
    """
    end_s = time.monotonic() + 60.0 * args.minutes
    from benchmarks.multi_dnn.networks import NetworkSpec
    from benchmarks.multi_dnn.rows import Bench
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
        say(
            "multi-dnn: no GPU: smaller networks in smaller numbers; the paper's comparison is "
            "about GPUs"
        )
    with tempfile.TemporaryDirectory() as folder, Bench(device, args, Path(folder)) as bench:
        result["settings"] = bench.describe()
        for index, (name, row) in enumerate(plan):
            now_s = time.monotonic()
            share_s = (end_s - now_s) / (len(plan) - index)
            say(f"multi-dnn: {name}: {len(row)} networks, {share_s:.0f} s")
            found = bench.measure(name, row, now_s + share_s)
            result["rows"].append(found)
            result["passed"] = judge(result)
            _keep(result, found, getattr(args, "output", None))
    return result


def _keep(result: dict[str, Any], row: dict[str, Any], output: Path | None) -> None:
    """Show and write what there is, so that an end by force loses no row."""
    say(to_text(report_row(row, result["device"])))
    say(json.dumps({"row": row}))
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"benchmark": "multi_dnn", **result, "complete": False}, indent=1)
        output.write_text(text + "\n", encoding="utf-8")
