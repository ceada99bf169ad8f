# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""From an image message to the network's first layer: bytes copied, time, and share of a frame.

The package's way (a view of the message, one fused pass into the input buffer) against
``cv_bridge``-style conversion and ``torch.from_numpy(...).permute().float() / 255``, in two forms:
``as_written``, where torch resizes the converted picture, and ``resized_first``, where OpenCV does
before, the best possible form of it. All take turns in one run on one message, which is written
again before each, as the transport would; their inputs are compared. ``copied`` are the bytes that
each writes for a frame, scratch memory included; ``passes`` is how often pixels of the camera's
size are read.

On a CUDA device the input buffer is in pageable, page-locked or mapped memory, and a time ends
when the input is on the device. Without one those rows are left out, with the reason.

``share`` is the part of a frame's response time (all stages of the model, back to back) that is
spent before the first layer, with each of the ways. All cells (size and encoding) are measured in
each of several rounds, and a figure is the median over them, so that a disturbance hits one round
of a cell and not the cell. ``mJ`` is the energy of the metered hardware for one input, back to
back, where it can be read.

Passes if ``as_written`` takes at least twice as long in the median over all cells, and
``resized_first``, which needs the same resize, is not faster.
"""

from __future__ import annotations

import argparse
import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from benchmarks.harness.options import Options, echo, read_size
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import Report, say, say_bars, tabulate
from benchmarks.harness.tasks import configure, load_task
from benchmarks.harness.timing import Times, measure_rounds, quantile_ms, take_turns
from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.backends.cuda.device import Cuda, regions
from jetson_dnn_rt.backends.cuda.driver import Kernel
from jetson_dnn_rt.backends.cuda.input import DevicePreprocessor, load_kernel
from jetson_dnn_rt.backends.cuda.owners import open_cuda
from jetson_dnn_rt.cameras.image_messages import view_image
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.input.encodings import ENCODINGS
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.platform import Platform
from jetson_dnn_rt.platforms.power import has_power, measure_mean_power
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running.pipeline import Pipeline

SIZES = [(480, 640), (720, 1280), (1080, 1920)]
KINDS = ("bgr8", "nv12", "yuyv", "bayer_rggb8")
MODEL_KINDS = ("detection", "segmentation", "classification")
MOST_STEPS = 2.0
"""Allowed mean difference of two ways' inputs, from rounding or the positions of Bayer pixels."""

FUSED, RESIZED_FIRST, AS_WRITTEN = "fused", "resized_first", "as_written"
BARS = {AS_WRITTEN: 2.0, RESIZED_FIRST: 1.0}
"""Time relative to the fused pass, at least, as the median over all sizes and encodings."""
PAGEABLE, PINNED, MAPPED = "pageable", "pinned", "mapped"
PINNED_FRAME, MAPPED_FRAME = "pinned_frame", "mapped_frame"
_FRAME = "frame"

# OpenCV names a Bayer pattern by its second row and second column.
_CODES = {
    "mono8": "GRAY2{}",
    "nv12": "YUV2{}_NV12",
    "nv21": "YUV2{}_NV21",
    "yuyv": "YUV2{}_YUYV",
    "uyvy": "YUV2{}_UYVY",
    "bayer_rggb8": "BayerBG2{}",
    "bayer_bggr8": "BayerRG2{}",
    "bayer_gbrg8": "BayerGR2{}",
    "bayer_grbg8": "BayerGB2{}",
}


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add(
        "--sizes", SIZES, "of the frames in pixels (default 640x480 1280x720 1920x1080)",
        kind=read_size, metavar="WxH",
    )  # fmt: skip
    add("--encodings", list(KINDS), "of the frames", choices=ENCODINGS)
    add("--model", "builtin:detector", "whose input it is")
    add("--kind", "detection", "of the model", choices=MODEL_KINDS)
    add("--threads", 1, "of OpenCV, torch and the model", least=1)
    add("--rounds", 3, "through all sizes and encodings", least=1)
    add("--seconds", 2.0, "of measuring each of them in a round", above=0, metavar="S")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all sizes and encodings in rounds; a row is one way of one of them.

    `BenchmarkError` when the ways do not make the same input.
    """
    missing = ""
    try:
        open_cuda().close()
    except BackendUnavailableError as error:
        missing = str(error)
    with _use_threads(args.threads), ExitStack() as stack:
        config = configure("task", args.model, kind=args.kind)
        task = load_task(stack, config, threads=args.threads)
        preprocessing, pipeline = task.model.preprocessing, task.variants.pipelines[task.default]
        cells = []
        for (height, width), encoding in product(args.sizes, args.encodings):
            ways = make_ways(preprocessing, height, width, encoding)
            if not missing:
                ways |= make_device_ways(preprocessing, height, width, encoding)
                ways |= _send_to_device(ways, make_message(encoding, height, width))
            cells.append(Cell(preprocessing, height, width, encoding, ways))
        for cell in take_turns(cells, args.rounds, "zero-copy"):
            cell.measure(pipeline, args.seconds)
        platform = stack.enter_context(detect())
        energy_missing = ""
        if has_power(platform):
            for cell in cells:
                cell.measure_energy(platform)
        else:
            energy_missing = "; ".join(platform.notes) or platform.reason
        rows = [row for cell in cells for row in cell.summarize()]
    ratios = {way: summarize_ratios(rows, way) for way in BARS}
    return {
        **echo(args, "model threads rounds"),
        "input": f"{preprocessing.width}x{preprocessing.height}",
        "rows": rows,
        "gpu_missing": missing,
        "energy_missing": energy_missing,
        "bars": BARS,
        "ratios": ratios,
        "passed": all(ratios[way]["median"] >= bar for way, bar in BARS.items()),
    }


def summarize_ratios(rows: Sequence[Mapping[str, Any]], way: str) -> dict[str, float]:
    """Summarize how many times as long as the fused pass a way takes, over all cells."""
    ratios = [row["ratio"] for row in rows if row["way"] == way]
    return {
        "median": round(float(np.median(ratios)), 3),
        "least": min(ratios),
        "largest": max(ratios),
        "cells": len(ratios),
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each way."""
    lines = [
        f"{result['model']}, input {result['input']}, threads {result['threads']}; medians over "
        f"{result['rounds']} rounds; ratio: time relative to {FUSED}, its range over the rounds"
    ]
    if result["gpu_missing"]:
        lines.append(f"no rows of a GPU: {result['gpu_missing']}")
    if result["energy_missing"]:
        lines.append(f"no energy: {result['energy_missing']}")
    for way, found in result["ratios"].items():
        lines.append(
            f"{way} over all {found['cells']} sizes and encodings: median {found['median']:.2f} "
            f"(bar {result['bars'][way]:g}), {found['least']:.2f} to {found['largest']:.2f}"
        )
    columns: list[str | tuple[str, Any]] = [
        "passes, p50 us=p50_us:.0f, p99 us=p99_us:.0f, ratio:.2f",
        ("range", lambda row: f"{row['ratio_range'][0]:.2f} to {row['ratio_range'][1]:.2f}"),
        "share %=share_percent:.1f",
    ]
    if not result["energy_missing"]:
        columns.append("mJ=energy_mj:.2f")
    return [
        tabulate(
            result["rows"],
            ("frame", lambda row: f"{row['width']}x{row['height']}"),
            "encoding, way",
            ("copied KiB", lambda row: round(row["copied_bytes"] / 1024)),
            *columns,
        ),
        "\n".join(lines),
        say_bars(
            "medians over all sizes and encodings, "
            + ", ".join(f"{way} >= {bar:g} times" for way, bar in result["bars"].items()),
            result["passed"],
        ),
    ]


class Cell:
    """Frames of one size and encoding, and all ways of preparing an input from them."""

    def __init__(
        self,
        preprocessing: Preprocessing,
        height: int,
        width: int,
        encoding: str,
        ways: Mapping[str, Way],
    ) -> None:
        self._where = {"height": height, "width": width, "encoding": encoding}
        self._ways = ways
        self._message = make_message(encoding, height, width)
        step = preprocessing.scale / min(preprocessing.std)
        self._differences = _find_differences(ways, self._message, step)
        self._rounds: list[dict[str, Times]] = []
        self._energy_mj: dict[str, float] = {}

    def measure(self, pipeline: Pipeline, seconds: float) -> None:
        """Measure one round: all ways in turn, and a frame through the whole model."""
        message = self._message
        runs: dict[str, Callable[[], object]] = {
            name: partial(way.run, message) for name, way in self._ways.items()
        }
        runs[_FRAME] = lambda: pipeline.run(Work(view_image(message, 0)))
        pixels = np.frombuffer(message.data, np.uint8)
        received = pixels.copy()

        def renew() -> None:
            """Write the message as the transport does, which leaves it in the cache."""
            pixels[:] = received

        self._rounds.append(
            measure_rounds(runs, budget_s=seconds, least=5, most=2000, warm_up=2, before=renew)
        )

    def measure_energy(self, platform: Platform) -> None:
        """Measure the energy of an input by each way, back to back, idle power included."""
        clock = SteadyClock()
        for name, way in self._ways.items():
            count = 0

            def prepare(way: Way = way) -> None:
                nonlocal count
                way.run(self._message)
                count += 1

            begin_ns = clock.now_ns()
            watts = measure_mean_power(platform, clock, prepare)
            self._energy_mj[name] = watts * (clock.now_ns() - begin_ns) * 1e-6 / count

    def summarize(self) -> list[dict[str, Any]]:
        """Make a row for each way: medians over the rounds."""
        return [
            {
                **self._where,
                "way": name,
                "copied_bytes": way.copied_bytes,
                "passes": way.passes,
                **summarize_rounds(self._rounds, name),
                "energy_mj": self._energy_mj.get(name),
                "difference_steps": self._differences.get(name),
            }
            for name, way in self._ways.items()
        ]


def summarize_rounds(rounds: Sequence[Mapping[str, Times]], way: str) -> dict[str, Any]:
    """Summarize one way: the median over the rounds of each figure, and the range of the ratio."""
    found: dict[str, list[float]] = {}
    for times in rounds:
        own, fused = times[way], times[FUSED]
        # Share of the response time before the first layer, if the input were made that way.
        share = np.median(own / np.maximum(1, times[_FRAME] - fused + own))
        figures = {
            "p50_us": quantile_ms(own, 0.5) * 1e3,
            "p99_us": quantile_ms(own, 0.99) * 1e3,
            "best_us": float(own.min()) * 1e-3,
            "ratio": float(np.median(own / fused)),
            "share_percent": 100.0 * float(share),
        }
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
    return {
        **{name: round(float(np.median(values)), 3) for name, values in found.items()},
        "ratio_range": [round(min(found["ratio"]), 3), round(max(found["ratio"]), 3)],
        "runs": sum(len(times[way]) for times in rounds),
    }


def _find_differences(ways: Mapping[str, Way], message: Any, step: float) -> dict[str, float]:
    """Find the mean difference of the host ways' inputs to the fused pass's, in 8-bit steps."""
    expected = np.array(ways[FUSED].run(message))
    found = {
        name: round(float(np.abs(np.asarray(ways[name].run(message)) - expected).mean() / step), 4)
        for name in (FUSED, RESIZED_FIRST, AS_WRITTEN)
    }
    if max(found.values()) > MOST_STEPS:
        raise BenchmarkError(f"the ways do not make the same input, steps of 8 bits: {found}")
    return found


@contextmanager
def _use_threads(count: int) -> Iterator[None]:
    """Set the number of threads of OpenCV and torch, and restore both."""
    before = cv2.getNumThreads(), torch.get_num_threads()
    cv2.setNumThreads(count)
    torch.set_num_threads(count)
    try:
        yield
    finally:
        cv2.setNumThreads(before[0])
        torch.set_num_threads(before[1])


# -- ways on the host ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One way of preparing an input.

    `run` takes a message and returns the input, [1, 3, height, width] on the host, or its
    equivalent on a device, when the first layer could begin. `copied_bytes` are written for each
    frame, scratch memory included; `passes` is how often pixels of the source's size are read.
    """

    run: Callable[[Any], object]
    copied_bytes: int
    passes: int = 1


def make_message(encoding: str, height: int, width: int) -> Any:
    """Make an image message of smooth colours, as rclpy has it, without ROS."""
    shape = ENCODINGS[encoding].shape(height, width)
    coarse = np.random.default_rng(1).integers(30, 220, (6, 8, *shape[2:]), np.uint8)
    image = cv2.resize(coarse, (width, shape[0]), interpolation=cv2.INTER_CUBIC)
    return SimpleNamespace(
        header=SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=2), frame_id="camera"),
        height=height,
        width=width,
        encoding=encoding,
        step=width * ENCODINGS[encoding].pixel_bytes,
        data=array.array("B", image.tobytes()),
    )


def make_ways(
    preprocessing: Preprocessing, height: int, width: int, encoding: str
) -> dict[str, Way]:
    """Make the ways that end in memory of the host, for frames of one size and encoding.

    `fused` is this package's: a view of the message and one pass into a preallocated buffer. The
    other two begin as ``cv_bridge`` does, with a converted copy of the whole picture, and end with
    ``torch.from_numpy(picture).permute(2, 0, 1).float() / 255``: `as_written` applies that to the
    whole picture and lets torch resize it, as most nodes do; `resized_first` resizes and pads with
    OpenCV before. All three write the same input, to the
    rounding of the resize.
    """
    shape = (1, 3, preprocessing.height, preprocessing.width)
    destination = np.zeros(shape, np.float32)
    preprocessor = Preprocessor(preprocessing, destination)
    convert = make_conversion(encoding, preprocessing.color)
    geometry = Geometry.of(preprocessing, height, width)
    size = (geometry.resized_height, geometry.resized_width)
    top, left = geometry.offset_y, geometry.offset_x
    rows, columns = slice(top, top + size[0]), slice(left, left + size[1])
    # The usual code in torch: / 255 if that is all, then the mean and deviation.
    divisor = 1.0 / preprocessing.scale
    centred = any(preprocessing.mean) or any(s != 1.0 for s in preprocessing.std)
    mean, std = (
        torch.tensor(one).view(3, 1, 1) for one in (preprocessing.mean, preprocessing.std)
    )

    def normalise(picture: Any) -> Any:
        if divisor != 1.0:
            picture = picture / divisor
        return (picture - mean) / std if centred else picture

    def to_tensor(picture: npt.NDArray[np.uint8]) -> Any:
        return normalise(torch.from_numpy(picture).permute(2, 0, 1).float())[None]

    def run_fused(message: Any) -> npt.NDArray[np.float32]:
        preprocessor.write(view_image(message, 0))
        return destination

    def run_resized_first(message: Any) -> object:
        resized = cv2.resize(convert(message), size[::-1], interpolation=cv2.INTER_LINEAR)
        padded = np.full((*shape[2:], 3), preprocessing.pad_value, np.uint8)
        padded[rows, columns] = resized
        return to_tensor(padded)

    padding = normalise(torch.full((3, 1, 1), float(preprocessing.pad_value)))

    def run_as_written(message: Any) -> object:
        picture = to_tensor(convert(message))
        resized = functional.interpolate(picture, size, mode="bilinear", align_corners=False)
        if resized.shape == shape:
            return resized
        padded = padding.expand(shape).contiguous()
        padded[:, :, rows, columns] = resized
        return padded

    run_fused(make_message(encoding, height, width))  # which allocates its scratch memory
    pixels, small, resized = height * width, shape[2] * shape[3], size[0] * size[1]
    # Operations on floats, each of which writes them again.
    steps = 1 + int(divisor != 1.0) + 2 * int(centred)
    padded = 0 if resized == small else small
    return {
        FUSED: Way(
            run_fused,
            preprocessor.written_bytes + preprocessor.scratch_bytes,
            # Interleaved luma and chroma are two views of the same bytes.
            passes=2 if ENCODINGS[encoding].layout == "paired" else 1,
        ),
        RESIZED_FIRST: Way(
            run_resized_first, 3 * (pixels + resized + small) + 4 * 3 * small * steps, passes=2
        ),
        AS_WRITTEN: Way(
            run_as_written,
            3 * pixels + 4 * 3 * (pixels * steps + resized + 2 * padded),
            passes=2 + steps,
        ),
    }


def make_conversion(encoding: str, color: str) -> Callable[[Any], npt.NDArray[np.uint8]]:
    """Make what ``imgmsg_to_cv2(message, "rgb8")`` does: a converted copy in bgr or rgb."""
    order = color.upper()
    if encoding in _CODES:
        code = getattr(cv2, f"COLOR_{_CODES[encoding].format(order)}")
    else:
        source = encoding.removesuffix("8").upper()
        code = None if source == order else getattr(cv2, f"COLOR_{source}2{order}")

    def convert(message: Any) -> npt.NDArray[np.uint8]:
        image = view_image(message, 0).image
        return image.copy() if code is None else np.asarray(cv2.cvtColor(image, code), np.uint8)

    return convert


# -- ways to a CUDA device -----------------------------------------------------------------------


def make_device_ways(
    preprocessing: Preprocessing, height: int, width: int, encoding: str
) -> dict[str, Way]:
    """Make the ways that end on the device; `BackendUnavailableError` when there is none.

    `pageable`, `pinned` and `mapped` are the memory that the pass on the CPU writes the input
    into: it is copied to the device by the driver, fetched by the device, or read there in place.
    For `pinned_frame` and `mapped_frame` the camera's frame is in such memory, and the device does
    the pass itself.
    """
    cuda = open_cuda()
    shape = (1, 3, preprocessing.height, preprocessing.width)
    frame = view_image(make_message(encoding, height, width), 0)
    kinds = {PAGEABLE: np.zeros(shape, np.float32), PINNED: cuda.allocate_host(shape, np.float32)}
    mapped = cuda.properties().maps_host_memory
    if mapped:
        kinds[MAPPED] = cuda.allocate_mapped(shape, np.float32)
    ways = {
        f"cuda {kind}": _make_written(preprocessing, cuda, host, frame, copied=kind != MAPPED)
        for kind, host in kinds.items()
    }
    try:
        kernel = load_kernel()
    except BackendUnavailableError as error:
        say(f"zero-copy: the device does not convert frames: {error}")
        return ways
    for kind in (PINNED_FRAME, MAPPED_FRAME) if mapped else (PINNED_FRAME,):
        fetched = kind == PINNED_FRAME
        ways[f"cuda {kind}"] = _make_on_device(preprocessing, kernel, frame, fetched=fetched)
    return ways


def _make_written(
    preprocessing: Preprocessing,
    cuda: Cuda,
    host: npt.NDArray[np.float32],
    frame: Frame,
    *,
    copied: bool,
) -> Way:
    preprocessor = Preprocessor(preprocessing, host)
    preprocessor.write(frame)
    there = cuda.allocate(host.shape, np.float32) if copied else _view(cuda, host)

    def run(message: Any) -> Array:
        preprocessor.write(view_image(message, 0))
        if copied:
            cuda.copy(there, host)
            cuda.synchronize()
        return there

    written = preprocessor.written_bytes + preprocessor.scratch_bytes
    return Way(run, written + (host.nbytes if copied else 0))


def _view(cuda: Cuda, host: npt.NDArray[np.float32]) -> Array:
    return cuda.view(regions.find(host), host.shape, np.float32)


def _make_on_device(
    preprocessing: Preprocessing, kernel: Kernel, frame: Frame, *, fetched: bool
) -> Way:
    """Make the input from the camera's frame in such memory: the message is ignored."""
    cuda = open_cuda()
    image = cuda.allocate_mapped(frame.image.shape, np.uint8)
    image[:] = frame.image
    lying = Frame(image, frame.encoding, 0, 0, device_address=regions.find(image))
    shape = (1, 3, preprocessing.height, preprocessing.width)
    # The way keeps its output buffer: the device's own memory, or mapped memory.
    host = None if fetched else cuda.allocate_mapped(shape, np.float32)
    there = cuda.allocate(shape, np.float32) if host is None else _view(cuda, host)
    device = DevicePreprocessor(preprocessing, there, cuda, kernel, fetched=fetched)

    def run(message: Any, host: Any = host) -> Array:
        device.write(lying)
        return there

    run(None)
    return Way(run, device.written_bytes)


def _send_to_device(ways: Mapping[str, Way], message: Any) -> dict[str, Way]:
    """Send a tensor of the other ways to the device by ``.to("cuda")``, if torch has CUDA."""

    def make(way: Way) -> Way:
        def send(given: Any) -> object:
            there = torch.as_tensor(way.run(given)).to("cuda")
            torch.cuda.synchronize()
            return there

        tensor = torch.as_tensor(way.run(message))
        return Way(send, way.copied_bytes + tensor.nbytes, way.passes)

    names = (RESIZED_FIRST, AS_WRITTEN) if torch.cuda.is_available() else ()
    return {f"cuda {name}": make(ways[name]) for name in names}
