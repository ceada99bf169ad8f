"""From an image message to the network's first layer: bytes copied, time, and share of a frame.

The package's way (a view of the message, one fused pass into the input buffer) against
``cv_bridge``-style conversion and ``torch.from_numpy(...).permute().float() / 255``, in two forms:
``as_written``, where torch resizes the converted picture, and ``resized_first``, where OpenCV does
before, the best that can be made of it. All take turns in one run on one message, which is written
anew before each, as the transport would; their inputs are compared. ``copied`` is what each writes
for a frame, scratch too; ``passes`` is how often pixels of the camera's size are read.

On a CUDA device the input buffer lies in pageable, page-locked or mapped memory, and a time ends
when the input is on the device. Without one those rows are left out, with the reason.

``share`` is the part of a frame's response time (all stages of the model, back to back) that is
spent before the first layer; for the other ways it is what it would be with them.

Passes when at 1280x720 in bgr8 on the CPU ``as_written`` takes at least twice as long, in the
median over the rounds; the ratio of ``resized_first``, which has the same resize to do, is shown
beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import cv2
import numpy as np

from benchmarks.harness.options import Options, read_size
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import Report, say, tabulate
from benchmarks.harness.tasks import configure, load_task
from benchmarks.harness.timing import Times, measure_rounds, quantile_ms
from benchmarks.zero_copy.ways import (
    AS_WRITTEN,
    FUSED,
    RESIZED_FIRST,
    Way,
    make_message,
    make_ways,
)
from jetson_dnn_rt.cameras.image_messages import view_image
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.models.input.encodings import ENCODINGS
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running.pipeline import Pipeline

BAR_RATIO = 2.0
BAR_SIZE, BAR_ENCODING = (720, 1280), "bgr8"
SIZES = [(480, 640), (720, 1280), (1080, 1920)]
KINDS = ("bgr8", "nv12", "yuyv", "bayer_rggb8")
MODEL_KINDS = ("detection", "segmentation", "classification")
MOST_STEPS = 2.0
"""Mean difference of two ways' inputs: the orders of rounding, the places of a Bayer pattern."""
_FRAME = "frame"


def add_arguments(add: Options) -> None:
    """Options of the benchmark."""
    add(
        "--sizes", SIZES, "of the frames in pixels (default 640x480 1280x720 1920x1080)",
        kind=read_size, metavar="WxH",
    )  # fmt: skip
    add("--encodings", list(KINDS), "of the frames", choices=ENCODINGS)
    add("--model", "builtin:detector", "whose input it is")
    add("--kind", "detection", "of the model", choices=MODEL_KINDS)
    add("--threads", 1, "of OpenCV, torch and the model", least=1)
    add("--seconds", 5.0, "of measuring for each size and encoding", above=0, metavar="S")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all sizes and encodings; a row is one way.

    `BenchmarkError` when the ways do not make the same input.
    """
    devices, missing = _find_devices()
    rows: list[dict[str, Any]] = []
    with _use_threads(args.threads), ExitStack() as stack:
        config = configure("task", args.model, kind=args.kind)
        task = load_task(stack, config, threads=args.threads)
        model, pipeline = task.model, task.variants.pipelines[task.default]
        for height, width in args.sizes:
            for encoding in args.encodings:
                say(f"zero-copy: {width}x{height} {encoding}")
                picture = (height, width, encoding)
                rows += _measure(model, pipeline, picture, devices, args.seconds)
    against = {
        row["way"]: row["ratio"]
        for row in rows
        if (row["height"], row["width"]) == BAR_SIZE
        and row["encoding"] == BAR_ENCODING
        and row["way"] in (RESIZED_FIRST, AS_WRITTEN)
    }
    return {
        "model": args.model,
        "input": f"{model.preprocessing.width}x{model.preprocessing.height}",
        "threads": args.threads,
        "rows": rows,
        "gpu_missing": missing,
        "bar_ratio": BAR_RATIO,
        "bar_ratios": against,
        "passed": against[AS_WRITTEN] >= BAR_RATIO if against else None,
    }


def report(result: Mapping[str, Any]) -> Report:
    """A line for each way."""
    lines = [
        f"{result['model']}, input {result['input']}, threads {result['threads']}; ratio: time "
        f"relative to {FUSED}, median over the rounds"
    ]
    if result["gpu_missing"]:
        lines.append(f"no rows of a GPU: {result['gpu_missing']}")
    for way, ratio in result["bar_ratios"].items():
        bar = f" (bar {BAR_RATIO:g})" if way == AS_WRITTEN else ""
        lines.append(f"1280x720 bgr8, {way}: {ratio:.2f} times{bar}")
    return [
        tabulate(
            result["rows"],
            ("frame", lambda row: f"{row['width']}x{row['height']}"),
            "encoding, way",
            ("copied KiB", lambda row: round(row["copied_bytes"] / 1024)),
            "passes, p50 us=p50_us:.0f, p99 us=p99_us:.0f, ratio:.2f, share %=share_percent:.1f",
        ),
        "\n".join(lines),
    ]


def _measure(
    model: Model, pipeline: Pipeline, picture: tuple[int, int, str], devices: bool, seconds: float
) -> list[dict[str, Any]]:
    preprocessing, (height, width, encoding) = model.preprocessing, picture
    message = make_message(encoding, height, width)
    ways: dict[str, Way] = make_ways(preprocessing, *picture)
    difference = _find_differences(ways, message, preprocessing.scale / min(preprocessing.std))
    if devices:
        from benchmarks.zero_copy import gpu

        on_device = gpu.make_ways(preprocessing, *picture)
        ways |= {f"cuda {kind}": way for kind, way in on_device.items()}
        ways |= _send_to_device(ways, message)
    runs: dict[str, Callable[[], object]] = {
        name: partial(way.run, message) for name, way in ways.items()
    }
    runs[_FRAME] = lambda: pipeline.run(Work(view_image(message, 0)))
    pixels = np.frombuffer(message.data, np.uint8)
    received = pixels.copy()

    def renew() -> None:
        """Write the message as the transport does, which leaves it in the cache."""
        pixels[:] = received

    times = measure_rounds(runs, budget_s=seconds, least=5, most=2000, warm_up=2, before=renew)
    return [
        {
            "height": height,
            "width": width,
            "encoding": encoding,
            "way": name,
            "copied_bytes": way.copied_bytes,
            "passes": way.passes,
            "p50_us": round(quantile_ms(times[name], 0.5) * 1e3, 1),
            "p99_us": round(quantile_ms(times[name], 0.99) * 1e3, 1),
            "best_us": round(float(times[name].min()) * 1e-3, 1),
            "ratio": round(float(np.median(times[name] / times[FUSED])), 3),
            "share_percent": _find_share(times, name),
            "difference_steps": difference.get(name),
            "rounds": len(times[name]),
        }
        for name, way in ways.items()
    ]


def _send_to_device(ways: Mapping[str, Way], message: Any) -> dict[str, Way]:
    """What nodes do with a tensor of the other ways: ``.to("cuda")``, where torch has CUDA."""
    import torch

    if not torch.cuda.is_available():
        return {}

    def make(way: Way) -> Way:
        def send(given: Any) -> object:
            there = torch.as_tensor(way.run(given)).to("cuda")
            torch.cuda.synchronize()
            return there

        tensor = torch.as_tensor(way.run(message))
        return Way(send, way.copied_bytes + tensor.nbytes, way.passes)

    return {f"cuda {name}": make(ways[name]) for name in (RESIZED_FIRST, AS_WRITTEN)}


def _find_share(times: Mapping[str, Times], name: str) -> float:
    """Percent of a frame's response time before the first layer, were the input made that way."""
    own, response = times[name], times[_FRAME] - times[FUSED] + times[name]
    return round(100.0 * float(np.median(own / np.maximum(1, response))), 2)


def _find_differences(ways: Mapping[str, Way], message: Any, step: float) -> dict[str, float]:
    """Mean difference of each way's input to that of the fused pass, in steps of eight bits."""
    expected = np.array(ways[FUSED].run(message))
    found = {
        name: round(float(np.abs(np.asarray(way.run(message)) - expected).mean() / step), 4)
        for name, way in ways.items()
    }
    if max(found.values()) > MOST_STEPS:
        raise BenchmarkError(f"the ways do not make the same input, steps of 8 bits: {found}")
    return found


def _find_devices() -> tuple[bool, str]:
    """Whether there is a CUDA device; otherwise why not."""
    from jetson_dnn_rt.backends.cuda.owners import open_cuda

    try:
        open_cuda().close()
    except BackendUnavailableError as error:
        return False, str(error)
    return True, ""


@contextmanager
def _use_threads(count: int) -> Iterator[None]:
    """Give OpenCV and torch so many threads, and restore both."""
    import torch

    before = cv2.getNumThreads(), torch.get_num_threads()
    cv2.setNumThreads(count)
    torch.set_num_threads(count)
    try:
        yield
    finally:
        cv2.setNumThreads(before[0])
        torch.set_num_threads(before[1])
