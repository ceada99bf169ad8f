# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Draw docs/images/fronts_*.svg from benchmarks/results/fronts.json.

One panel for each scenario. Energy and accuracy: points with few misses are full, the others only
outlined; the line is the bound, below which no run can be. Energy and misses: all points with an
accuracy of at least 0.95, with the bound of energy as a line.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed

from benchmarks.fronts.contest import DESK, HINDSIGHT, OURS  # noqa: E402
from benchmarks.harness.tables import say  # noqa: E402
from jetson_dnn_rt.lab.simulate.hindsight import TOLERANCE  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "fronts.json"
FOLDER = ROOT / "docs" / "images"
FLOOR = 0.95
COLUMNS = 3

STYLES = {
    OURS: ("#D55E00", "o"),
    "alert": ("#0072B2", "s"),
    DESK: ("#000000", "P"),
    HINDSIGHT: ("#000000", "X"),
    "oracle": ("#999999", "*"),
}
"""Okabe & Ito's colours; the other policies get those below, by name."""
OTHERS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#882255", "#44AA99", "#DDCC77")
MARKERS = "v^<>DdphH"


def find_styles(scenarios: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each policy, the same in all panels."""
    names = {label(point) for scenario in scenarios for point in scenario["points"]}
    styles = dict(STYLES)
    for place, name in enumerate(sorted(names - set(styles))):
        styles[name] = OTHERS[place % len(OTHERS)], MARKERS[place % len(MARKERS)]
    return {name: style for name, style in styles.items() if name in names}


def label(point: Mapping[str, Any]) -> str:
    """What a point is called: a static choice by who made it, the others by their name."""
    return str(point["group"] if point["group"] in (DESK, HINDSIGHT) else point["name"])


def draw_accuracy(panel: Any, scenario: Mapping[str, Any], styles: Mapping[str, Any]) -> None:
    """Energy by met frame and accuracy."""
    known = [p for p in scenario["points"] if p["accuracy"] is not None]
    fewest = min(p["miss_ratio"] for p in known if p["group"] == "policy")
    for point in known:
        color, marker = styles[label(point)]
        few = point["miss_ratio"] <= fewest + TOLERANCE
        panel.plot(
            point["energy_j"], point["accuracy"], marker, color=color, markersize=6 if few else 4,
            markerfacecolor=color if few else "none", alpha=0.9 if few else 0.45, linestyle="none",
        )  # fmt: skip
    curve = scenario["bound"]
    panel.plot(
        [row["energy_j"] for row in curve], [row["floor"] for row in curve], color="#555555", lw=1
    )
    panel.set_ylim(0.885, 1.005)
    panel.set_ylabel("accuracy")


def draw_misses(panel: Any, scenario: Mapping[str, Any], styles: Mapping[str, Any]) -> None:
    """Energy by met frame and misses, of all that keep the floor of accuracy."""
    for point in scenario["points"]:
        if point["accuracy"] is None or point["accuracy"] < FLOOR:
            continue
        color, marker = styles[label(point)]
        panel.plot(
            point["energy_j"], 100.0 * point["miss_ratio"], marker, color=color, markersize=5.5,
            alpha=0.85, linestyle="none", clip_on=False,
        )  # fmt: skip
    for row in scenario["bound"]:
        if row["floor"] == FLOOR:
            panel.axvline(row["energy_j"], color="#555555", lw=1)
    panel.set_yscale("symlog", linthresh=1.0)
    panel.set_ylim(0.0, 100.0)
    panel.set_yticks([0, 0.5, 1, 5, 20, 100], ["0", "0.5", "1", "5", "20", "100"])
    panel.set_ylabel("missed, %")


DRAWINGS = {"fronts_accuracy": draw_accuracy, "fronts_misses": draw_misses}


def draw(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw all figures; return their paths."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    scenarios = result["scenarios"]
    styles = find_styles(scenarios)
    rows = math.ceil(len(scenarios) / COLUMNS)
    handles = [
        Line2D([], [], color=color, marker=marker, linestyle="none", label=name)
        for name, (color, marker) in styles.items()
    ]
    handles.append(Line2D([], [], color="#555555", lw=1, label="bound"))
    paths = []
    # The same file from the same result: no date, no random names.
    with mpl.rc_context({"svg.hashsalt": "fronts", "svg.fonttype": "none", "font.size": 8}):
        for name, draw_panel in DRAWINGS.items():
            figure: Any = Figure(figsize=(11, 2.5 * rows + 1.0), layout="constrained")
            FigureCanvasSVG(figure)
            panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
            for panel, scenario in zip(panels, scenarios, strict=False):
                draw_panel(panel, scenario, styles)
                panel.set_title(
                    f"{scenario['seed']}: {', '.join(scenario['disturbances'])}", fontsize=9
                )
                panel.set_xscale("log")
                panel.set_xlabel("J by met frame")
                panel.minorticks_off()
                low, high = panel.get_xlim()
                ticks = [low * (high / low) ** share for share in (0.1, 0.37, 0.63, 0.9)]
                panel.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
                panel.grid(True, color="#e6e9ec", lw=0.6)
                panel.spines[["top", "right"]].set_visible(False)
            for panel in panels[len(scenarios) :]:
                panel.remove()
            figure.legend(handles=handles, loc="outside lower center", ncol=7, frameon=False)
            paths.append(folder / f"{name}.svg")
            figure.savefig(paths[-1], metadata={"Date": None})
    return paths


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--result", type=Path, default=RESULT)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    args = parser.parse_args(arguments)
    for path in draw(json.loads(args.result.read_text(encoding="utf-8")), args.folder):
        say(f"{path} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
