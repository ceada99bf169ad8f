# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""From the message to the first layer, and from the outputs to the message: bytes, time, energy.

**Inputs.** The package's way (a view of the message, one fused pass into the input buffer) against
``cv_bridge``-style conversion and ``torch.from_numpy(...).permute().float() / 255``, in two forms:
``as_written``, where torch resizes the converted picture, and ``resized_first``, where OpenCV does
before, the best possible form of it. All take turns in one run on one message, which is written
again before each, as the transport would; their inputs are compared. ``copied`` are the bytes that
each writes for a frame, scratch memory included; ``passes`` is how often pixels of the camera's
size are read.

On a CUDA device the input buffer is in pageable, page-locked or mapped memory, and a time ends
when the input is on the device. Without one those rows are left out, with the reason.

**Outputs.** From the buffers that the network has written to a message that is ready to be
published. The package's way (``in_place``) decodes them where they lie and fills a message that is
used again. A mask ``as_written`` is the usual code: the logits are interpolated to the size of the
source, ``argmax(1).cpu().numpy()``, and ``cv2_to_imgmsg`` of ``cv_bridge``; ``small_first`` is the
best possible form of it, which decides the classes first, with torch's faster ``max``. Boxes
``as_written`` are decoded alike and put into new messages. On a CUDA device the outputs are
fetched into page-locked memory, as the package does, or into new pageable arrays, as ``.cpu()``
does. What rclpy copies in ``publish`` is the same for all of them and left out.

``share`` is the part of a frame's response time (all stages of the model, back to back) that is
spent before the first layer, or after the last one, with each of the ways; ``frame`` is that time.
All cells (size and encoding) are measured in each of several rounds, and a figure is the median
over them, so that a disturbance hits one round of a cell and not the cell. ``mJ`` is the energy of
the metered hardware for one input or result, and for a whole frame, back to back, where it can be
read.

Passes if ``as_written`` takes at least twice as long in the median over all cells, and
``resized_first``, which needs the same resize, is not faster. Of masks, too, ``as_written`` takes
at least twice as long, and ``small_first`` is not faster.
"""

from __future__ import annotations

import argparse
import array
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from benchmarks.harness.options import Options, echo, read_size
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import Report, Table, judge_all, say, say_bars, tabulate
from benchmarks.harness.tasks import configure, draw_frames, load_task
from benchmarks.harness.timing import Times, measure_rounds, quantile_ms, take_turns
from jetson_dnn_rt.backends.base import Array, HostArrays
from jetson_dnn_rt.backends.cuda.device import Cuda, regions
from jetson_dnn_rt.backends.cuda.driver import Kernel
from jetson_dnn_rt.backends.cuda.input import DevicePreprocessor, load_kernel
from jetson_dnn_rt.backends.cuda.owners import open_cuda
from jetson_dnn_rt.cameras.image_messages import view_image
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.input.encodings import ENCODINGS
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.nodes.tasks.conversion import DetectionsWriter, ImageWriter, fill_header
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.platform import Platform
from jetson_dnn_rt.platforms.power import has_power, measure_mean_power
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running.frame_processor import OUTPUTS

PARTS = ("inputs", "outputs")
SIZES = [(480, 640), (720, 1280), (1080, 1920)]
KINDS = ("bgr8", "nv12", "yuyv", "bayer_rggb8")
MODEL_KINDS = ("detection", "segmentation", "classification")
OF_INPUTS: dict[str, Any] = {
    "encodings": list(KINDS), "model": "builtin:detector", "kind": "detection",
}  # fmt: skip
"""Options that are of inputs alone, and their defaults."""
MOST_STEPS = 2.0
"""Allowed mean difference of two ways' inputs, from rounding or the positions of Bayer pixels."""

FUSED, RESIZED_FIRST, AS_WRITTEN = "fused", "resized_first", "as_written"
BARS = {AS_WRITTEN: 2.0, RESIZED_FIRST: 1.0}
"""Time relative to the fused pass, at least, as the median over all sizes and encodings."""
IN_PLACE, SMALL_FIRST = "in_place", "small_first"
OUTPUT_MODELS = {"class_mask": "builtin:segmenter", "detections": "builtin:detector"}
"""Networks whose outputs are published, by topic."""
OUTPUT_BARS = {AS_WRITTEN: 2.0, SMALL_FIRST: 1.0}
"""Time of a mask relative to the package's way, at least, as the median over all sizes."""
MOST_DIFFERING = 10.0
"""Allowed percentage of a mask's pixels in which two ways differ: those at edges."""
PAPER = {
    "where": "GoogLeNet at 224 x 224 in Caffe on a Jetson TK1, mean of 100 frames",
    "frame_s": [0.46, 0.41],
    "frame_mwh": [0.58, 0.37],
}
"""Figure 1 of paper 002 ("The optimization of deep learning performance for embedded systems using
a zero-copy technique"): with copies from page-locked memory, and with mapped memory."""
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
    add("--parts", list(PARTS), "default: both", choices=PARTS)
    add(
        "--sizes", SIZES, "of the frames in pixels (default 640x480 1280x720 1920x1080)",
        kind=read_size, metavar="WxH",
    )  # fmt: skip
    add("--encodings", OF_INPUTS["encodings"], "of the frames", choices=ENCODINGS)
    add("--model", OF_INPUTS["model"], "whose input it is")
    add("--kind", OF_INPUTS["kind"], "of the model", choices=MODEL_KINDS)
    add("--threads", 1, "of OpenCV, torch and the model", least=1)
    add("--rounds", 3, "through all sizes and encodings", least=1)
    add("--seconds", 2.0, "of measuring each of them in a round", above=0, metavar="S")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all sizes and encodings in rounds; a row is one way of one of them.

    `BenchmarkError` when the ways do not make the same input, or the same mask;
    `ConfigurationError` for an option of inputs where only outputs are measured.
    """
    unused = [f"--{name}" for name, value in OF_INPUTS.items() if getattr(args, name) != value]
    if unused and "inputs" not in args.parts:
        raise ConfigurationError(
            f"{', '.join(unused)}: of inputs, which --parts leaves out; outputs are those of "
            f"{', '.join(OUTPUT_MODELS.values())}"
        )
    missing = ""
    try:
        open_cuda().close()
    except BackendUnavailableError as error:
        missing = str(error)
    outputs_missing = _find_missing_messages() if "outputs" in args.parts else "not measured"
    with _use_threads(args.threads), ExitStack() as stack:
        size, inputs = _open_inputs(args, missing, stack) if "inputs" in args.parts else ("", [])
        outputs = {
            topic: [] if outputs_missing else _open_outputs(topic, args, missing, stack)
            for topic in OUTPUT_MODELS
        }
        cells = [*inputs, *(cell for group in outputs.values() for cell in group)]
        for cell in take_turns(cells, args.rounds, "zero-copy"):
            cell.measure(args.seconds)
        platform = stack.enter_context(detect())
        energy_missing = ""
        if has_power(platform):
            for cell in cells:
                cell.measure_energy(platform)
        else:
            energy_missing = "; ".join(platform.notes) or platform.reason
        rows = [row for cell in inputs for row in cell.summarize()]
        published = {
            topic: [row for cell in group for row in cell.summarize()]
            for topic, group in outputs.items()
        }
    ratios = {way: summarize_ratios(rows, way) for way in BARS} if rows else {}
    masks = published["class_mask"]
    mask_ratios = {way: summarize_ratios(masks, way) for way in OUTPUT_BARS} if masks else {}
    return {
        **echo(args, "model threads rounds"),
        "input": size,
        "rows": rows,
        "paper": PAPER,
        "gpu_missing": missing,
        "energy_missing": energy_missing,
        "bars": BARS,
        "ratios": ratios,
        "outputs": {
            "missing": outputs_missing,
            "rows": published,
            "bars": OUTPUT_BARS,
            "ratios": mask_ratios,
        },
        "passed": judge_all(
            found[way]["median"] >= bar
            for found, bars in ((ratios, BARS), (mask_ratios, OUTPUT_BARS))
            for way, bar in bars.items()
            if found
        ),
    }


def _find_missing_messages() -> str:
    for package in ("rclpy", "sensor_msgs", "vision_msgs"):
        if importlib.util.find_spec(package) is None:
            return f"they end in messages, and {package} is not installed"
    return ""


def _open_inputs(
    args: argparse.Namespace, missing: str, stack: ExitStack
) -> tuple[str, list[Cell]]:
    """Load the model; return the size of its input, and the cells."""
    config = configure("task", args.model, kind=args.kind)
    task = load_task(stack, config, threads=args.threads)
    preprocessing, pipeline = task.model.preprocessing, task.variants.pipelines[task.default]
    cells = []
    for (height, width), encoding in product(args.sizes, args.encodings):
        message = make_message(encoding, height, width)
        ways = make_ways(preprocessing, height, width, encoding)
        if not missing:
            ways |= make_device_ways(preprocessing, height, width, encoding)
            ways |= _send_to_device(ways, message)
        differences = _find_differences(
            ways, message, preprocessing.scale / min(preprocessing.std)
        )
        pixels = np.frombuffer(message.data, np.uint8)
        received = pixels.copy()

        def renew(pixels: Any = pixels, received: Any = received) -> None:
            """Write the message as the transport does, which leaves it in the cache."""
            pixels[:] = received

        def run_frame(message: Any = message) -> None:
            pipeline.run(Work(view_image(message, 0)))

        where = {"height": height, "width": width, "encoding": encoding}
        cells.append(Cell(where, ways, message, renew, run_frame, differences))
    return f"{preprocessing.width}x{preprocessing.height}", cells


def summarize_ratios(rows: Sequence[Mapping[str, Any]], way: str) -> dict[str, float]:
    """Summarize how many times as long as the package's way another takes, over all cells."""
    ratios = [row["ratio"] for row in rows if row["way"] == way]
    return {
        "median": round(float(np.median(ratios)), 3),
        "least": min(ratios),
        "largest": max(ratios),
        "cells": len(ratios),
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each way."""
    outputs = result.get("outputs", {"missing": "not measured", "rows": {}})
    lines = [
        f"threads {result['threads']}; medians over {result['rounds']} rounds; ratio: time "
        "relative to the package's way, its range over the rounds"
    ]
    if result["gpu_missing"]:
        lines.append(f"no rows of a GPU: {result['gpu_missing']}")
    if result["energy_missing"]:
        lines.append(f"no energy: {result['energy_missing']}")
    figures: list[str | tuple[str, Any]] = [
        ("copied KiB", lambda row: round(row["copied_bytes"] / 1024)),
        "p50 us=p50_us:.0f, p99 us=p99_us:.0f, ratio:.2f",
        ("range", lambda row: f"{row['ratio_range'][0]:.2f} to {row['ratio_range'][1]:.2f}"),
        "share %=share_percent:.1f, frame ms=frame_ms:.2f",
    ]
    if not result["energy_missing"]:
        figures.append("mJ=energy_mj:.2f, frame mJ=frame_mj:.2f")
    where: tuple[str, Any] = ("frame", lambda row: f"{row['width']}x{row['height']}")
    parts: list[str | Table] = ["\n".join(lines)]
    bars = []
    if result["rows"]:
        parts += [
            f"inputs, {result['model']}, {result['input']}: "
            + _tell_ratios(result, "sizes and encodings"),
            tabulate(result["rows"], where, "encoding, way, passes", *figures),
        ]
        bars.append("inputs over all sizes and encodings, " + _tell_bars(result["bars"]))
    if outputs["missing"]:
        parts.append(f"no outputs: {outputs['missing']}")
    else:
        parts.append(f"outputs, masks: {_tell_ratios(outputs, 'sizes')}")
        bars.append("masks over all sizes, " + _tell_bars(outputs["bars"]))
    for topic, rows in outputs["rows"].items():
        if rows:
            columns = ("way", *figures, "differing %=differing_percent:.2f")
            parts.append(tabulate(rows, (topic, where[1]), *columns))
    return [*parts, say_bars(f"medians of {'; '.join(bars)}", result["passed"])]


def _tell_ratios(found: Mapping[str, Any], cells: str) -> str:
    return "; ".join(
        f"{way} over all {one['cells']} {cells}: median {one['median']:.2f} (bar "
        f"{found['bars'][way]:g}), {one['least']:.2f} to {one['largest']:.2f}"
        for way, one in found["ratios"].items()
    )


def _tell_bars(bars: Mapping[str, float]) -> str:
    return ", ".join(f"{way} >= {bar:g} times" for way, bar in bars.items())


class Cell:
    """One cell of the table: all ways take turns on what they are `given`.

    `renew` is called before each of them. `run_frame` runs a frame through the whole model by the
    package's way, which is the first one. `facts` are further figures of ways, by name.
    """

    def __init__(
        self,
        where: Mapping[str, Any],
        ways: Mapping[str, Way],
        given: Any,
        renew: Callable[[], object],
        run_frame: Callable[[], object],
        facts: Mapping[str, Mapping[str, float]],
    ) -> None:
        self._where, self._ways, self._given = where, ways, given
        self._renew, self._run_frame, self._facts = renew, run_frame, facts
        self._rounds: list[dict[str, Times]] = []
        self._energy_mj: dict[str, float] = {}

    def measure(self, seconds: float) -> None:
        """Measure one round: all ways in turn, and a frame through the whole model."""
        runs: dict[str, Callable[[], object]] = {
            name: partial(way.run, self._given) for name, way in self._ways.items()
        }
        runs[_FRAME] = self._run_frame
        self._rounds.append(
            measure_rounds(
                runs, budget_s=seconds, least=5, most=2000, warm_up=2, before=self._renew
            )
        )

    def measure_energy(self, platform: Platform) -> None:
        """Measure the energy of each way and of a frame, back to back, idle power included."""
        clock = SteadyClock()
        runs: dict[str, Callable[[], object]] = {
            name: partial(way.run, self._given) for name, way in self._ways.items()
        }
        for name, work in {**runs, _FRAME: self._run_frame}.items():
            count = 0

            def repeat(work: Callable[[], object] = work) -> None:
                nonlocal count
                work()
                count += 1

            begin_ns = clock.now_ns()
            watts = measure_mean_power(platform, clock, repeat)
            self._energy_mj[name] = watts * (clock.now_ns() - begin_ns) * 1e-6 / count

    def summarize(self) -> list[dict[str, Any]]:
        """Make a row for each way: medians over the rounds."""
        first, energy_mj = next(iter(self._ways)), self._energy_mj
        return [
            {
                **self._where,
                "way": name,
                "copied_bytes": way.copied_bytes,
                "passes": way.passes,
                **summarize_rounds(self._rounds, name, first),
                "energy_mj": energy_mj.get(name),
                "frame_mj": energy_mj[_FRAME] - energy_mj[first] + energy_mj[name]
                if energy_mj
                else None,
                **self._facts.get(name, {}),
            }
            for name, way in self._ways.items()
        ]


def summarize_rounds(
    rounds: Sequence[Mapping[str, Times]], way: str, first: str
) -> dict[str, Any]:
    """Summarize one way: the median over the rounds of each figure, and the range of the ratio.

    `first` is the package's way, by which the frame was run.
    """
    found: dict[str, list[float]] = {}
    for times in rounds:
        own, ours = times[way], times[first]
        frame = np.maximum(1, times[_FRAME] - ours + own)  # if it were made that way
        figures = {
            "p50_us": quantile_ms(own, 0.5) * 1e3,
            "p99_us": quantile_ms(own, 0.99) * 1e3,
            "best_us": float(own.min()) * 1e-3,
            "ratio": float(np.median(own / ours)),
            "share_percent": 100.0 * float(np.median(own / frame)),
            "frame_ms": float(np.median(frame)) * 1e-6,
        }
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
    return {
        **{name: round(float(np.median(values)), 3) for name, values in found.items()},
        "ratio_range": [round(min(found["ratio"]), 3), round(max(found["ratio"]), 3)],
        "runs": sum(len(times[way]) for times in rounds),
    }


def _find_differences(
    ways: Mapping[str, Way], message: Any, step: float
) -> dict[str, dict[str, float]]:
    """Find the mean difference of the host ways' inputs to the fused pass's, in 8-bit steps."""
    expected = np.array(ways[FUSED].run(message))
    found = {
        name: round(float(np.abs(np.asarray(ways[name].run(message)) - expected).mean() / step), 4)
        for name in (FUSED, RESIZED_FIRST, AS_WRITTEN)
    }
    if max(found.values()) > MOST_STEPS:
        raise BenchmarkError(f"the ways do not make the same input, steps of 8 bits: {found}")
    return {name: {"difference_steps": steps} for name, steps in found.items()}


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
    """One way of preparing an input, or of publishing a result.

    `run` takes a message and returns the input, [1, 3, height, width] on the host, or its
    equivalent on a device, when the first layer could begin; or it takes the outputs and returns a
    message. `copied_bytes` are written for each frame, scratch memory included; `passes` is how
    often pixels of the camera's picture are read.
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


# -- ways of the outputs -------------------------------------------------------------------------


def _open_outputs(
    topic: str, args: argparse.Namespace, missing: str, stack: ExitStack
) -> list[Cell]:
    kind = {"class_mask": "segmentation", "detections": "detection"}[topic]
    config = configure(topic, OUTPUT_MODELS[topic], kind=kind)
    task = load_task(stack, config, threads=args.threads)
    *stages, _ = task.variants.pipelines[task.default].stages  # without the decoder
    cells = []
    for height, width in args.sizes:
        (frame,) = draw_frames(1, (height, width))

        def run_network(frame: Frame = frame) -> HostArrays:
            work = Work(frame)
            for stage in stages:
                stage.run(work)
            return cast(HostArrays, work.scratch[OUTPUTS])

        outputs = tuple(np.array(values) for values in run_network())
        written = tuple(values.copy() for values in outputs)
        ways = OUTPUT_WAYS[topic](task.model, outputs, frame)
        facts = {
            name: {"differing_percent": _find_differing(ways, name, outputs)} for name in ways
        }
        if not missing:
            ways |= make_fetched_ways(ways, outputs, open_cuda())

        def renew(outputs: HostArrays = outputs, written: HostArrays = written) -> None:
            """Write the outputs as the network does, which leaves them in the cache."""
            for values, given in zip(outputs, written, strict=True):
                values[:] = given

        def run_frame(ways: Mapping[str, Way] = ways, run: Any = run_network) -> None:
            ways[IN_PLACE].run(run())

        where = {"height": height, "width": width}
        cells.append(Cell(where, ways, outputs, renew, run_frame, facts))
    return cells


def _find_differing(ways: Mapping[str, Way], name: str, outputs: HostArrays) -> float:
    """Find the percentage of a mask's pixels, or of boxes, that differ from the package's way."""
    # Messages are used again: what is compared must not be one of them.
    expected, found = (_read(ways[way].run(outputs)) for way in (IN_PLACE, name))
    if len(found) != len(expected):
        raise BenchmarkError(f"{name} finds {len(found)} objects, {IN_PLACE} {len(expected)}")
    differing = 100.0 * float((found != expected).mean()) if len(found) else 0.0
    if differing > MOST_DIFFERING:
        raise BenchmarkError(f"{name} differs from {IN_PLACE} in {differing:.1f} % of the pixels")
    return round(differing, 3)


def _read(message: Any) -> npt.NDArray[Any]:
    """Read the pixels of a mask, or the scores of boxes, as a new array."""
    if hasattr(message, "data"):
        return np.frombuffer(message.data, np.uint8).copy()
    return np.array([item.results[0].hypothesis.score for item in message.detections])


def make_mask_ways(model: Model, outputs: HostArrays, frame: Frame) -> dict[str, Way]:
    """Make the ways from logits [1, C, h, w] to an image of classes of the frame's size."""
    from sensor_msgs.msg import Image

    height, width = frame.height, frame.width
    geometry, decode = Geometry.of(model.preprocessing, height, width), model.create_decoder()
    settings, writer = DecoderSettings(), ImageWriter("mono8")
    _, classes, rows, columns = outputs[0].shape
    # Logits of the padding, right and below, are left out.
    high = -(-geometry.resized_height * rows // model.preprocessing.height)
    wide = -(-geometry.resized_width * columns // model.preprocessing.width)

    def run_in_place(outputs: HostArrays) -> Any:
        result: Any = decode(outputs, geometry, settings)
        return writer.write(result.mask, frame)

    def make_message(mask: npt.NDArray[np.uint8]) -> Any:
        """Do what ``cv2_to_imgmsg(mask, "mono8")`` does."""
        message = Image(height=height, width=width, encoding="mono8", step=width)
        fill_header(message.header, frame)
        message.data.frombytes(mask.tobytes())
        return message

    def run_small_first(outputs: HostArrays) -> Any:
        logits = torch.from_numpy(outputs[0])[0, :, :high, :wide]
        # A fifth of the time of `argmax`, on a CPU.
        mask = logits.max(0).indices.cpu().numpy().astype(np.uint8)
        return make_message(
            np.asarray(
                cv2.resize(mask, (width, height), interpolation=cv2.INTER_NEAREST), np.uint8
            )
        )

    def run_as_written(outputs: HostArrays) -> Any:
        logits = torch.from_numpy(outputs[0])[:, :, :high, :wide]
        size = (height, width)
        logits = functional.interpolate(logits, size, mode="bilinear", align_corners=False)
        return make_message(logits.argmax(1)[0].cpu().numpy().astype(np.uint8))

    pixels, cells = height * width, high * wide
    return {
        # Best logit, whether it is better, class; rows and all of the mask; the message.
        IN_PLACE: Way(run_in_place, 6 * cells + high * width + 2 * pixels, passes=0),
        # Best logit, classes as int64 and as bytes; the mask, a copy as bytes, and the message.
        SMALL_FIRST: Way(run_small_first, 13 * cells + 3 * pixels, passes=0),
        # Classes as both at full size, and its logits.
        AS_WRITTEN: Way(run_as_written, (4 * classes + 9 + 2) * pixels, passes=0),
    }


def make_box_ways(model: Model, outputs: HostArrays, frame: Frame) -> dict[str, Way]:
    """Make the ways from a detector's outputs to its boxes; ``copied`` are their arrays."""
    geometry = Geometry.of(model.preprocessing, frame.height, frame.width)
    decode, settings, writer = model.create_decoder(), DecoderSettings(), DetectionsWriter()

    def run_in_place(outputs: HostArrays) -> Any:
        found: Any = decode(outputs, geometry, settings)
        return writer.write(found, frame)

    def run_as_written(outputs: HostArrays) -> Any:
        found: Any = decode(outputs, geometry, settings)
        return DetectionsWriter().write(found, frame)  # new messages

    found: Any = decode(outputs, geometry, settings)
    size = found.boxes.nbytes + found.scores.nbytes + found.class_ids.nbytes
    return {
        IN_PLACE: Way(run_in_place, size, passes=0),
        AS_WRITTEN: Way(run_as_written, size, passes=0),
    }


OUTPUT_WAYS = {"class_mask": make_mask_ways, "detections": make_box_ways}


def make_fetched_ways(ways: Mapping[str, Way], outputs: HostArrays, cuda: Cuda) -> dict[str, Way]:
    """Make the ways from outputs on a CUDA device, fetched into the memory of their names."""
    there = [cuda.allocate(values.shape, values.dtype) for values in outputs]
    for device, values in zip(there, outputs, strict=True):
        cuda.copy(device, values)
    cuda.synchronize()
    kept = tuple(cuda.allocate_host(values.shape, values.dtype) for values in outputs)

    def fetch(host: HostArrays) -> HostArrays:
        for values, device in zip(host, there, strict=True):
            cuda.copy(values, device)
        cuda.synchronize()
        return host

    def make(way: Way, allocate: Callable[[], HostArrays]) -> Way:
        size = sum(values.nbytes for values in outputs)
        return Way(lambda _: way.run(fetch(allocate())), way.copied_bytes + size, passes=0)

    def allocate_new() -> HostArrays:
        return tuple(np.empty_like(values) for values in outputs)

    others = {name: way for name, way in ways.items() if name != IN_PLACE}
    return {
        f"cuda {PINNED}": make(ways[IN_PLACE], lambda: kept),
        f"cuda {PAGEABLE}": make(ways[IN_PLACE], allocate_new),
        **{f"cuda {name}": make(way, allocate_new) for name, way in others.items()},
    }
