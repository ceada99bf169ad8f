# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Show what a model is taken for: head, labels and preprocessing, and the back ends that run it.

With --frames the results are drawn on your own pictures under each plausible preprocessing side by
side (rgb or bgr; pixels as 0-255, 0-1 or as for ImageNet): the right one is seen at a glance, and
--pick N prints it as YAML for a parameter file. Beside masks is the number of their pieces: with
pixels in a wrong range there are several times as many. Exit code 1 when the model cannot be used
as it is; the message says what to set.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.threads import count_cores
from jetson_dnn_rt.cameras.files import write_image
from jetson_dnn_rt.cli.options import add_trust, parse_count
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError, ModelError, naming
from jetson_dnn_rt.models.heads.base import DecoderSettings, Kind
from jetson_dnn_rt.models.heads.labels import name_class, name_mask_classes
from jetson_dnn_rt.models.input.preprocessing import ColorOrder, Preprocessing, imagenet_input
from jetson_dnn_rt.printable import make_printable
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation

if TYPE_CHECKING:
    from jetson_dnn_rt.backends.base import Runner
    from jetson_dnn_rt.frames import Frame, Image
    from jetson_dnn_rt.models.heads.base import Inspected
    from jetson_dnn_rt.models.model import Model, Opened

HELP = "show what a model is taken for, and its results under each plausible preprocessing"

_RUNS = 5  # of each back end, after one that does not count
_TILE = 480  # pixels, width of one picture of the sheet
_CAPTION = 26  # pixels, height of the line above it; masks have a second one
_LONGEST = 400  # characters of the labels and of a value of the metadata
_LINES = 3  # pictures drawn by default
_CLASSES = 3  # of a mask whose shares are shown, the largest

FIELDS = ("resize", "color", "scale", "mean", "std")
"""Fields of the preprocessing that are printed as YAML."""


class Candidate(NamedTuple):
    """A plausible preprocessing."""

    name: str
    preprocessing: Preprocessing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="onnx:PATH, torchvision:NAME, exported:PATH, builtin:NAME")
    add("--frames", metavar="S", help="DIR, video:PATH, images:DIR, bag:PATH or synthetic[:SEED]")
    add("--count", type=parse_count, default=_LINES, metavar="N", help="pictures (default 3)")
    text = "folder of the sheets (default: inspect_output)"
    add("--output", type=Path, default=Path("inspect_output"), metavar="DIR", help=text)
    add("--pick", type=parse_count, metavar="N", help="print the YAML of this preprocessing")
    add("--kind", choices=get_args(Kind), help="the task that it is meant for")
    add("--head", default="auto", help="a layout, or package.module:Class")
    add("--labels", metavar="S", help="coco80, coco91, voc21, imagenet or a file")
    add("--weights", default="DEFAULT", metavar="S", help="of torchvision: DEFAULT, none, a file")
    text = "of the input, where the file leaves it open"
    add("--input-size", type=parse_count, nargs=2, metavar=("H", "W"), help=text)
    add("--outputs", nargs="+", default=[], metavar="NAME", help="of an ONNX file, those to use")
    text = "NAME=VALUE of the inputs of an ONNX file beside the image"
    add("--constant-inputs", nargs="+", default=[], metavar="S", help=text)
    add("--confidence", type=float, default=0.3, metavar="P", help="smallest score (default 0.3)")
    add_trust(parser)
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Inspect one model.

    ConfigurationError: an option cannot be used. ModelError: the model cannot be read at all.
    """
    _check_options(args)
    # Whatever it logs is in the report, too.
    log = logging.getLogger("jetson_dnn_rt.models")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        return _inspect(args)
    finally:
        log.setLevel(before)


def _inspect(args: argparse.Namespace) -> int:
    from jetson_dnn_rt.models.heads.registry import LAYOUTS
    from jetson_dnn_rt.models.model import SourceOptions
    from jetson_dnn_rt.models.sources.registry import inspect_network, make_model, open_network

    out = sys.stderr if args.json else sys.stdout
    options = SourceOptions(
        tuple(args.input_size) if args.input_size else None, args.weights, args.labels, args.trust,
        tuple(args.outputs), tuple(args.constant_inputs),
    )  # fmt: skip
    opened = open_network(args.model, options)
    seen = inspect_network(opened, options)
    about: dict[str, Any] = {"model": args.model, **_describe_network(opened, seen)}
    _print_values(about, out)
    try:
        model = make_model(args.model, opened, seen, options, args.kind, args.head, {})
    except ModelError as error:
        known = "\n".join(f"  {layout.name}: {layout.form}" for layout in LAYOUTS.values())
        print(f"head        none\nknown heads\n{known}\n{error}", file=out)
        if args.json:
            print(json.dumps({**about, "head": None, "error": str(error)}))
        return 1
    found = _describe_model(model, opened)
    _print_values(found, out)
    found["back_ends"] = _try_back_ends(model, out)
    if args.frames:
        found["preprocessings"] = _compare(args, model, out)
    if args.json:
        print(json.dumps({**about, **found}))
    return 0


def _check_options(args: argparse.Namespace) -> None:
    if not 0.0 <= args.confidence <= 1.0:
        raise ConfigurationError(f"--confidence must be in [0, 1]: {args.confidence}")
    if args.pick is not None and not args.frames:
        raise ConfigurationError("--pick is for one of the pictures: give --frames, too")
    if args.pick is not None and args.pick > len(_COLOURS) * len(_SCALES):
        most = len(_COLOURS) * len(_SCALES)
        raise ConfigurationError(f"--pick must be in [1, {most}]: {args.pick}")


def _print_values(values: dict[str, Any], out: Any) -> None:
    """Print names and values, lists one to a line."""
    for name, value in values.items():
        lines = value if isinstance(value, list) else [value]
        for place, line in enumerate(lines or ["none"]):
            shown = make_printable(str(line))
            print(f"{name.replace('_', ' ') if place == 0 else '':<15} {shown}", file=out)


def _describe_network(opened: Opened, seen: Inspected) -> dict[str, Any]:
    """What is known before the head is."""
    height, width = opened.input_size
    names = seen.names or tuple(f"output {place}" for place in range(len(seen.outputs)))
    outputs = [
        f"{name} {output.dtype} {list(output.shape)}{_describe_range(output)}"
        for name, output in zip(names, seen.outputs, strict=True)
    ]
    return {
        "hash": opened.model_hash[:16],
        "inputs": list(opened.inputs) or [f"float32 [1, 3, {height}, {width}]"],
        "input_size": f"{height}x{width}",
        "outputs": outputs,
        "metadata": [f"{key}: {_shorten(value)}" for key, value in seen.metadata.values],
    }


def _describe_range(output: np.ndarray[Any, Any]) -> str:
    if not output.size:
        return ""
    return f", {output.min():.4g} to {output.max():.4g} for a grey picture"


def _shorten(text: str) -> str:
    line = make_printable(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _describe_model(model: Model, opened: Opened) -> dict[str, Any]:
    from jetson_dnn_rt.models.sources.registry import describe_preprocessing

    in_file = opened.labels, opened.metadata.likely_names
    source = "the file" if model.labels in in_file else "by their number, or given"
    if model.labels_assumed:
        source = "ASSUMED, the outputs do not tell how many there are"
    known = "read from the file" if not model.assumed else f"ASSUMED: {', '.join(model.assumed)}"
    return {
        "head": f"{model.head.name}: {model.head.reason}",
        "kind": model.kind,
        "labels": f"{len(model.labels)} ({source}): {_shorten(', '.join(model.labels))}",
        "preprocessing": f"{describe_preprocessing(model.preprocessing)} ({known})",
    }


def _try_back_ends(model: Model, out: Any) -> dict[str, str]:
    """Run the network on every back end in every precision, and print what comes of it."""
    from jetson_dnn_rt.backends.registry import BUILT_BEFOREHAND, list_backends

    found: dict[str, str] = {}
    for info in list_backends():
        if info.name == "null":
            continue
        if not info.available:
            found[info.name] = "not installed; jetson-dnn-rt doctor says how"
        elif info.name in BUILT_BEFOREHAND:
            found[info.name] = "built beforehand: jetson-dnn-rt build"
        else:
            for precision in info.precisions:
                if precision == "int8":
                    found[f"{info.name}-int8"] = "calibrated beforehand: jetson-dnn-rt build"
                    continue
                found[f"{info.name}-{precision}"] = _try_one(model, info.name, precision)
    _print_values({"back_ends": [f"{name}: {text}" for name, text in found.items()]}, out)
    return found


def _try_one(model: Model, backend: str, precision: str) -> str:
    from jetson_dnn_rt.backends.registry import create_runner

    try:
        runner = create_runner(model, backend, precision, threads=count_cores())
        try:
            image = runner.allocate_input()
            image.fill(0.45)
            times = []
            for _ in range(1 + _RUNS):
                begin_ns = time.monotonic_ns()
                runner.to_host(runner.run([image]))
                times.append(time.monotonic_ns() - begin_ns)
        finally:
            runner.close()
    except JetsonDnnRtError as error:
        return f"cannot run it: {_shorten(str(error))}"
    except Exception as error:  # libraries raise what they like for operators they do not know
        return f"cannot run it: {type(error).__name__}: {_shorten(str(error))}"
    return f"{statistics.median(times[1:]) / 1e6:.1f} ms on {count_cores()} threads"


# -- preprocessing -----------------------------------------------------------------------------

_COLOURS: tuple[ColorOrder, ...] = ("rgb", "bgr")
_SCALES = ("0-255", "0-1", "ImageNet")


def list_candidates(known: Preprocessing) -> list[Candidate]:
    """The plausible ones, all with the resize of `known`."""
    imagenet = imagenet_input(1, 1)
    reverse = {"rgb": slice(None), "bgr": slice(None, None, -1)}
    plain: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    found = []
    for color in _COLOURS:
        for scale in _SCALES:
            values = {**plain, "scale": 1.0 if scale == "0-255" else 1.0 / 255.0}
            if scale == "ImageNet":
                order = reverse[color]
                values |= {"mean": imagenet.mean[order], "std": imagenet.std[order]}
            found.append(Candidate(f"{color} {scale}", replace(known, color=color, **values)))
    return found


def format_yaml(preprocessing: Preprocessing) -> str:
    """The preprocessing as parameters of a task."""
    values = {key: getattr(preprocessing, key) for key in FIELDS}
    return "\n".join(f"preprocessing.{key}: {_format_value(v)}" for key, v in values.items())


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    if isinstance(value, float):  # whole ones with a point: ROS tells 1 from 1.0
        return f"{value:.8g}" if value % 1 else f"{value:.1f}"
    return str(value)


def _compare(args: argparse.Namespace, model: Model, out: Any) -> list[dict[str, Any]]:
    """Draw the results under every candidate, and print how sure the network is under each."""
    candidates = list_candidates(model.preprocessing)
    frames = list(_open_frames(args.frames, args.count))
    if not frames:
        raise ConfigurationError(f"--frames {args.frames}: there is no picture")
    runner = _make_runner(model)
    try:
        results = [
            _run_candidate(replace(model, preprocessing=one.preprocessing), runner, frames, args)
            for one in candidates
        ]
    finally:
        runner.close()
    try:
        args.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--output {args.output} cannot be made: {error}") from error
    names = [f"{place + 1}: {one.name}" for place, one in enumerate(candidates)]
    for place, frame in enumerate(frames):
        path = args.output / f"preprocessing_{place + 1}.png"
        sheet = _draw_sheet(frame, [found[place] for found in results], names, model.labels)
        with naming(path):
            write_image(path, sheet)
        print(f"drawn           {path}", file=out)
    rows = []
    for name, one, found in zip(names, candidates, results, strict=True):
        text = describe_results(found, model.labels)
        now = "  <- taken now" if one.preprocessing == model.preprocessing else ""
        print(f"  {name:<16} {text}{now}", file=out)
        rows.append({"name": one.name, "results": text, "yaml": format_yaml(one.preprocessing)})
    if args.pick is None:
        print(
            "look at the pictures; --pick N prints the one that is right as YAML. Where none is, "
            "the network has a mean and std of its own: set preprocessing.* as its code does",
            file=out,
        )
    else:
        chosen = candidates[args.pick - 1]
        print(indent(f"# {chosen.name}\n{format_yaml(chosen.preprocessing)}", "    "), file=out)
    return rows


def _open_frames(source: str, count: int) -> Iterator[Frame]:
    from jetson_dnn_rt.variants.measuring.sample_frames import open_frames

    return open_frames(f"images:{source}" if Path(source).is_dir() else source, count)


def _make_runner(model: Model) -> Runner:
    """A runner of the first back end that takes the network in fp32."""
    from jetson_dnn_rt.backends.registry import BUILT_BEFOREHAND, create_runner, list_backends

    reasons = []
    for info in list_backends():
        if info.name in (*BUILT_BEFOREHAND, "null") or not info.available:
            continue
        try:
            return create_runner(model, info.name, "fp32", threads=count_cores())
        except JetsonDnnRtError as error:
            reasons.append(f"{info.name}: {_shorten(str(error))}")
    raise ModelError(
        f"no back end here runs {model.source}: {'; '.join(reasons) or 'none is there'}"
    )


def _run_candidate(
    model: Model, runner: Runner, frames: Sequence[Frame], args: argparse.Namespace
) -> list[Result]:
    from jetson_dnn_rt.tasks import Work
    from jetson_dnn_rt.variants.running.frame_processor import OUTPUTS, FrameProcessor

    settings = DecoderSettings(confidence=args.confidence)
    processor = FrameProcessor(model, settings, runner.allocate_input())
    results = []
    for frame in frames:
        work = Work(frame)
        processor.preprocess(work)
        work.scratch[OUTPUTS] = runner.to_host(runner.run([processor.image]))
        processor.decode(work)
        assert work.result is not None
        results.append(work.result)
    return results


def describe_results(results: Sequence[Result], labels: Sequence[str]) -> str:
    """What was found in all pictures; which is right they show alone: nonsense can score high."""
    first = results[0]
    if isinstance(first, Detections):
        scores = np.concatenate([r.scores for r in results if isinstance(r, Detections)])
        mean = float(scores.mean()) if scores.size else 0.0
        return f"{len(scores)} objects, mean score {mean:.2f}"
    if isinstance(first, Segmentation):
        several = [found.masks for found in results if isinstance(found, Segmentation)]
        return "; ".join(_describe_mask(one, labels) for one in zip(*several, strict=True))
    best = [float(found.scores[0]) for found in results if isinstance(found, Classification)]
    return f"mean score of the best class {np.mean(best):.2f}"


def _describe_mask(masks: Sequence[Segmentation], labels: Sequence[str]) -> str:
    """Its pieces and classes in all pictures.

    The mean probability is no help: of the built-in segmenter it was highest in a wrong reading.
    """
    names = name_mask_classes(labels, masks[0].name, masks[0].classes)
    counts = [np.bincount(found.mask.ravel(), minlength=256) for found in masks]
    shares = np.mean([count / count.sum() for count in counts], axis=0)
    seen = np.argsort(-shares, kind="stable")[: np.count_nonzero(shares)].tolist()
    parts = [f"{name_class(names, one)} {100 * shares[one]:.0f} %" for one in seen[:_CLASSES]]
    if len(seen) > _CLASSES:
        parts.append(f"{len(seen) - _CLASSES} more")
    pieces = np.mean([count_pieces(found.mask) for found in masks])
    of = f"{masks[0].name}: " if masks[0].name else ""
    return f"{of}{pieces:.0f} pieces, {', '.join(parts)}"


def count_pieces(mask: npt.NDArray[np.uint8]) -> int:
    """Count the connected areas of one class in a mask [H, W]; corners connect."""
    classes = np.flatnonzero(np.bincount(mask.ravel())).tolist()
    # OpenCV counts the pixels that are none of them as one component.
    return sum(cv2.connectedComponents(np.uint8(mask == one))[0] - 1 for one in classes)


def _draw_sheet(
    frame: Frame, results: Sequence[Result], names: Sequence[str], labels: Sequence[str]
) -> Image:
    """Tiles in rows of three, each with the name of its preprocessing above it.

    Below the name of one with masks are its pieces and classes.
    """
    from jetson_dnn_rt.nodes.tasks.drawing import draw_results

    tiles = []
    for name, result in zip(names, results, strict=True):
        picture = draw_results(frame, [(result, labels)])
        height = max(1, round(picture.shape[0] * _TILE / picture.shape[1]))
        lines = [(name, 0.55)]
        if isinstance(result, Segmentation):
            lines.append((describe_results([result], labels), 0.45))
        top = _CAPTION * len(lines)
        tile = np.zeros((top + height, _TILE, 3), np.uint8)
        cv2.resize(picture, (_TILE, height), dst=tile[top:], interpolation=cv2.INTER_AREA)
        for place, (text, size) in enumerate(lines):
            at = (6, _CAPTION * (place + 1) - 8)
            white = (255, 255, 255)
            cv2.putText(tile, text, at, cv2.FONT_HERSHEY_SIMPLEX, size, white, 1, cv2.LINE_AA)
        tiles.append(tile)
    across = len(_SCALES)
    rows = [np.hstack(tiles[first : first + across]) for first in range(0, len(tiles), across)]
    return np.vstack(rows)
