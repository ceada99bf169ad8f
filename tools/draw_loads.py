# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Draw docs/images/overload.svg and streaming.svg from the results of these benchmarks.

Curves over the load, one for each side: the share of the frames whose results were in time, with a
panel for each deadline, and the streaming accuracy, with a panel for each rate of the camera.
Where the usual node is as good as this package or better, the background is grey.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed

from benchmarks.harness.tables import say  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
FOLDER = ROOT / "docs" / "images"
OURS, NAIVE = "ours", "naive"
AS_GOOD = 1.02
"""Ratio of ours to the usual node up to which that counts as good as this package."""

Cell = Mapping[str, Any]
COLORS = {OURS: "#D55E00", NAIVE: "#000000"}
OTHERS = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#882255", "#44AA99")
"""Okabe & Ito's colours, and some of Paul Tol's."""


@dataclass(frozen=True)
class Picture:
    """Which cells share a panel, and what is drawn of them."""

    benchmark: str
    unit: str
    panel: Callable[[Cell], float]
    title: str
    values: Callable[[Cell], Mapping[str, float | None]]
    """By side."""


def _met_ratios(cell: Cell) -> dict[str, float | None]:
    return {
        side: figures["met_ratio"]
        for side, figures in cell.items()
        if isinstance(figures, Mapping) and "met_ratio" in figures
    }


def _accuracies(cell: Cell) -> dict[str, float | None]:
    return {
        side: figures["accuracy"]["detector"]["value"] for side, figures in cell["sides"].items()
    }


PICTURES = (
    Picture(
        "overload", "share in time", lambda cell: float(cell["deadline_factor"]),
        "deadline {:g} x both networks", _met_ratios,
    ),
    Picture(
        "streaming", "sAP", lambda cell: float(cell["rate_hz"]), "camera of {:g} Hz", _accuracies,
    ),
)  # fmt: skip


def find_as_good(cells: Sequence[Cell], picture: Picture) -> list[float]:
    """Loads at which the usual node is as good as this package, or better."""
    loads = []
    for cell in cells:
        values = picture.values(cell)
        ours, naive = values[OURS] or 0.0, values[NAIVE] or 0.0
        if ours <= AS_GOOD * naive:
            loads.append(float(cell["load"]))
    return loads


def draw(result: Mapping[str, Any], picture: Picture, path: Path) -> None:
    """Draw one figure; the same file from the same result: no date, no random names."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    cells = sorted(result["cells"], key=lambda cell: (picture.panel(cell), cell["load"]))
    panels = [(key, list(of)) for key, of in itertools.groupby(cells, picture.panel)]
    sides = list(dict.fromkeys(side for cell in cells for side in picture.values(cell)))
    others = itertools.cycle(OTHERS)
    colors = {side: COLORS.get(side) or next(others) for side in sides}
    with mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.size": 8}):
        figure: Any = Figure(figsize=(2.4 * max(2, len(panels)) + 0.6, 3.2), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (key, its) in zip(axes, panels, strict=True):
            for load in find_as_good(its, picture):
                axis.axvspan(load - 0.12, load + 0.12, color="#dddddd", lw=0)
            for side in sides:
                points = [(cell["load"], picture.values(cell).get(side)) for cell in its]
                known = [(load, value) for load, value in points if value is not None]
                axis.plot(
                    *zip(*known, strict=True), "o-", color=colors[side], label=side,
                    markersize=3, lw=2 if side == OURS else 1,
                )  # fmt: skip
            axis.set_title(picture.title.format(key), fontsize=9)
            axis.set_xlabel("load")
            axis.grid(True, color="#e6e9ec", lw=0.6)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel(picture.unit)
        axes[0].set_ylim(bottom=0.0)  # of all panels
        handles, labels = axes[0].get_legend_handles_labels()
        columns = 1 + len(panels)
        figure.legend(handles, labels, loc="outside lower center", ncol=columns, frameon=False)
        figure.savefig(path, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the figures of all results that are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    args = parser.parse_args(arguments)
    for picture in PICTURES:
        source = args.results / f"{picture.benchmark}.json"
        if source.exists():
            path = args.folder / f"{picture.benchmark}.svg"
            draw(json.loads(source.read_text(encoding="utf-8")), picture, path)
            say(f"{path} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
