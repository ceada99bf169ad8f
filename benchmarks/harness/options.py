# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Options of a benchmark, with type, range and default; the help shows the default."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
"""Folder beside the checkout with a video and an ONNX file, which are not part of the project."""
BESIDE = "default: that of ../shared/data beside the checkout"
CORES = len(os.sched_getaffinity(0))
VIDEO, YOLOX = "video/dashcam_white_right.mp4", "models/yolox_nano.onnx"


class Options:
    """Adder of options to a parser."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def __call__(
        self,
        name: str,
        default: Any = None,
        help: str = "",
        *,
        kind: Callable[[str], Any] | None = None,
        least: float | None = None,
        above: float | None = None,
        most: float = math.inf,
        choices: Collection[str] | None = None,
        metavar: str | None = None,
        nargs: int | None = None,
        action: str = "store",
    ) -> None:
        """Add an option; a list as default means several values, False means a flag."""
        if default is False:
            self._parser.add_argument(name, action="store_true", help=help)
            return
        many = isinstance(default, list)
        sample = next(iter(default), None) if many else default
        if kind is None:
            kind = Path if isinstance(sample, Path) else str if sample is None else type(sample)
        if default not in (None, "", []) and "default" not in help:
            help += f" (default {' '.join(map(_show, default)) if many else _show(default)})"
        if choices is not None and many:
            metavar = metavar or "NAME"
            help = f"of {', '.join(choices)}; {help}" if help else f"of {', '.join(choices)}"
        self._parser.add_argument(
            name,
            action=action,
            type=_limit(kind, least, above, most),
            default=default,
            help=help,
            choices=choices,
            metavar=metavar,
            nargs=nargs or ("+" if many else None),
        )

    def one_of(self) -> Options:
        """Add a group of options of which at most one may be given."""
        return Options(self._parser.add_mutually_exclusive_group())


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _limit(
    kind: Callable[[str], Any], least: float | None, above: float | None, most: float
) -> Callable[[str], Any]:
    """Make a parser that refuses values outside the range; NaN and infinity are always refused."""
    if least is None and above is None and most == math.inf:
        return kind

    def read(text: str) -> Any:
        value = kind(text)
        low = -math.inf if above is None else above
        if not (
            low < value <= most and math.isfinite(value) and (least is None or value >= least)
        ):
            range_ = f">= {least:g}" if least is not None else f"> {low:g}"
            upper = f" and <= {most:g}" if most < math.inf else ""
            raise argparse.ArgumentTypeError(f"must be {range_}{upper}: {text}")
        return value

    read.__name__ = getattr(kind, "__name__", "value")  # argparse names it in its errors
    return read


def add_library(add: Options) -> None:
    """Add ``--engine-cache``."""
    add(
        "--engine-cache", None, "library of the variants (default ~/.cache/jetson_dnn_rt)",
        kind=Path, metavar="DIR",
    )  # fmt: skip


def echo(args: argparse.Namespace, names: str) -> dict[str, Any]:
    """Select some options by name, for the result."""
    return {name: getattr(args, name) for name in names.split()}


def read_size(text: str) -> tuple[int, int]:
    """Parse ``1280x720`` to height and width."""
    width, _, height = text.partition("x")
    if not (width.isdigit() and height.isdigit() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"must be WIDTHxHEIGHT in pixels: {text!r}")
    return int(height), int(width)


def read_names(text: str) -> list[str]:
    """Parse ``a,b`` to names, each once."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("needs at least one name")
    return list(dict.fromkeys(names))
