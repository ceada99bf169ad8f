# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Draw docs/images/soak.svg from the result of the campaign ``soak``.

Over the time: memory of the process by its owner, its threads and descriptors, and the frames.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "test" / "campaigns" / "results" / "soak.json"
TARGET = ROOT / "docs" / "images" / "soak.svg"

PANELS: tuple[tuple[str, Mapping[str, str]], ...] = (
    (
        "MB",
        {
            "memory_mb": "resident",
            "anonymous_mb": "of it not shared with files",
            "malloc_used_mb": "in use by malloc",
            "buffers_mb": "frame buffers",
        },
    ),
    ("number", {"threads": "threads", "descriptors": "descriptors"}),
    ("thousand frames", {"frames": "frames of the camera"}),
)
"""Unit of each panel, and the series in it."""

COLORS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7")
"""Okabe & Ito's."""


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the figure; the same file from the same result: no date, no random names."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    series = report["series"]
    minutes = [seconds / 60.0 for seconds in series["seconds"]]
    with mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.size": 8}):
        figure: Any = Figure(figsize=(7.2, 5.4), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(len(PANELS), 1, sharex=True, height_ratios=(3, 2, 1))
        for axis, (unit, names) in zip(axes, PANELS, strict=True):
            scale = 1e-3 if unit.startswith("thousand") else 1.0
            for color, (name, title) in zip(COLORS, names.items(), strict=False):
                if name in series:
                    values = [scale * value for value in series[name]]
                    axis.plot(minutes, values, color=color, label=title, lw=1)
            axis.set_ylabel(unit)
            axis.set_ylim(bottom=0.0)
            axis.grid(True, color="#e6e9ec", lw=0.6)
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        axes[-1].set_xlabel("minutes")
        figure.savefig(path, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--result", type=Path, default=SOURCE)
    parser.add_argument("--output", type=Path, default=TARGET)
    args = parser.parse_args(arguments)
    draw(json.loads(args.result.read_text(encoding="utf-8")), args.output)
    print(f"{args.output} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
