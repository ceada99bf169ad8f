"""Figures of `bench paper000`: layers as bars, execution times as distributions."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jetson_dnn_rt.errors import ConfigurationError

LAYERS_SHOWN = 12
BINS = 60
_COLUMNS = 2
_BAR, _TAIL, _BEST = "#4c78a8", "#e45756", "#54a24b"


def check_matplotlib() -> None:
    """Raise `ConfigurationError` without matplotlib: before an hour of measuring, not after it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigurationError(
            "the figures need matplotlib, which is not installed: "
            "pip install 'jetson_dnn_rt[plots]'"
        )


def draw(models: Mapping[str, Any], folder: Path, *, runs: int, machine: str) -> list[Path]:
    """Draw both figures as PNG files into a folder that is made where it is missing.

    `models` is what was measured of each network, with ``samples_ms``.

    `ConfigurationError` when the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        layers = f"The {LAYERS_SHOWN} layers that take longest: median, and up to p99\n{machine}"
        times = f"Execution times of {runs} real frames, no profiler attached\n{machine}"
        return [
            _save(models, folder / "layers.png", _draw_layers, layers),
            _save(models, folder / "distributions.png", _draw_distribution, times),
        ]
    except OSError as error:
        raise ConfigurationError(f"cannot write {folder}: {error.strerror}") from error


def _save(models: Mapping[str, Any], path: Path, draw_one: Any, title: str) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(models) // _COLUMNS)
    figure: Any = Figure(figsize=(13, 0.6 + 3.6 * rows), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, _COLUMNS, squeeze=False)
    for axes, (name, entry) in zip(grid.flat, models.items(), strict=False):
        draw_one(axes, name, entry)
    for axes in list(grid.flat)[len(models) :]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=12)
    figure.savefig(path)
    return path


def _draw_layers(axes: Any, name: str, entry: Mapping[str, Any]) -> None:
    longest = sorted(entry["layers"], key=lambda layer: -float(layer["share"]))[:LAYERS_SHOWN]
    longest.reverse()  # bars go upwards
    medians = [layer["time_ms"]["p50"] for layer in longest]
    upper = [layer["time_ms"]["p99"] - layer["time_ms"]["p50"] for layer in longest]
    labels = [f"{_shorten(layer['name'])}  {100.0 * layer['share']:.0f} %" for layer in longest]
    axes.barh(
        range(len(longest)), medians, color=_BAR, xerr=[np.zeros(len(upper)), upper],
        error_kw={"ecolor": _TAIL, "capsize": 2, "linewidth": 1},
    )  # fmt: skip
    axes.set_yticks(range(len(longest)), labels, fontsize=8)
    axes.set_xlabel("ms")
    axes.set_title(f"{name}: {entry['layers_ms']:.1f} ms in {len(entry['layers'])} layers")


def _draw_distribution(axes: Any, name: str, entry: Mapping[str, Any]) -> None:
    times = entry["time_ms"]
    axes.hist(entry["samples_ms"], bins=BINS, color=_BAR)
    axes.set_yscale("log")
    lines = [("BCET", times["best"], _BEST, "-"), ("high-water mark", times["max"], _TAIL, "-")]
    for bound in entry["pwcet"]["bounds"]:
        if bound["upper_ms"] is not None:
            words = f"pWCET at {bound['exceedance']:.0e}, {bound['support']}"
            lines.append((words, bound["upper_ms"], "#b279a2", "--"))
    for words, value, colour, style in lines:
        axes.axvline(value, color=colour, linestyle=style, label=f"{words}: {value:.1f} ms")
    axes.set_xlabel("ms a frame")
    axes.set_ylabel("frames")
    axes.legend(fontsize=8, loc="upper right")
    without = "" if len(lines) > 2 else ": no bound, " + ", ".join(entry["pwcet"]["failed"][:3])
    axes.set_title(f"{name} ({entry['pwcet']['support']}{without})", fontsize=10)


def _shorten(name: str, length: int = 34) -> str:
    return name if len(name) <= length else f"...{name[3 - length :]}"
