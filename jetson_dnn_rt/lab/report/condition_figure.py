"""The tails of one campaign under several conditions, and what each stage gained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jetson_dnn_rt.lab.report.conditions import Shift, pair_stages
from jetson_dnn_rt.lab.report.recording import Recording
from jetson_dnn_rt.lab.report.stage_figure import choose_stages, shorten
from jetson_dnn_rt.lab.report.style import (
    CONDITION_COLORS,
    INK,
    Layout,
    Picture,
    clear_grid,
    mark_deadline,
    render,
    use_log_shares,
    write_title,
)
from jetson_dnn_rt.lab.report.tail_figure import survival
from jetson_dnn_rt.lab.report.wording import format_digits
from jetson_dnn_rt.lab.wcet.samples import Sample

MOST_CONDITIONS = len(CONDITION_COLORS) - 1
MOST_STAGES = 14


def draw_conditions(
    name: str, recordings: Sequence[Recording], shifts: Sequence[Shift]
) -> Picture:
    """Draw one campaign under all conditions: tails on the left, p99 of stages on the right.

    Parameters
    ----------
    name : str
        Of the file.
    recordings : sequence of Recording
        The first is what the others are compared with.
    shifts : sequence of Shift
        Of the same task and variant, one for each condition.
    """
    shown = list(shifts[:MOST_CONDITIONS])
    others = {recording.label: recording for recording in recordings[1:]}
    before = shown[0].before
    stages = [pair_stages(recordings[0], others[shift.condition], before) for shift in shown]
    chosen = choose_stages([first for first, _ in stages[0]], MOST_STAGES)

    def draw(figure: Any, layout: Layout) -> None:
        height = max(330, 110 + 30 * len(chosen))
        count = 2 if chosen else 1
        panels = layout.panels(figure, count, height, widths=(1.25, 1.0), narrow_px=320)
        _draw_tails(panels[0], recordings[0].label, shown, layout)
        if chosen:
            _draw_stages(panels[1], chosen, stages, layout)

    alt = f"Execution times of {before.title}: {recordings[0].label} against " + ", ".join(
        shift.condition for shift in shown
    )
    return render(name, alt, draw)


def _draw_tails(panel: Any, label: str, shifts: Sequence[Shift], layout: Layout) -> None:
    samples = [shifts[0].before, *(shift.after for shift in shifts)]
    labels = [label, *(shift.condition for shift in shifts)]
    highest, floor = 0.0, 1.0
    key = []
    for sample, text, color in zip(samples, labels, CONDITION_COLORS, strict=False):
        ordered_ms = np.sort(sample.times_ns) / 1e6
        times, shares = survival(ordered_ms)
        panel.plot(times, shares, color=color, drawstyle="steps-post")
        panel.plot([ordered_ms[-1]], [1.0 / len(ordered_ms)], "o", color=color, ms=5)
        highest, floor = max(highest, float(ordered_ms[-1])), min(floor, 1.0 / len(ordered_ms))
        key.append((f"■ {text}  highest {format_digits(float(ordered_ms[-1]))} ms", color))
    use_log_shares(panel, floor / 2.5)
    low = min(float(sample.times_ns.min()) for sample in samples) / 1e6
    margin = 0.05 * max(highest - low, 0.02 * highest)
    deadline_ms = shifts[0].before.deadline_ns / 1e6
    right = highest + margin
    if highest < deadline_ms < highest + 10 * margin:
        right = deadline_ms + margin
    panel.set_xlim(low - margin, right)
    panel.set_xlabel("execution time [ms]")
    if deadline_ms:
        mark_deadline(panel, deadline_ms, f"deadline {format_digits(deadline_ms)} ms")
    width = 1.0 if layout.narrow else 0.55
    write_title(panel, "How often a frame takes longer", layout, key, width=width)


def _draw_stages(
    panel: Any,
    chosen: Sequence[Sample],
    stages: Sequence[Sequence[tuple[Sample, Sample]]],
    layout: Layout,
) -> None:
    rows = np.arange(len(chosen))[::-1]
    for row, stage in zip(rows, chosen, strict=True):
        p99_before = _p99_ms(stage)
        panel.plot([p99_before], [row], "o", ms=6, color=CONDITION_COLORS[0], zorder=5)
        offset = 0.0
        for pairs, color in zip(stages, CONDITION_COLORS[1:], strict=False):
            after = [other for first, other in pairs if first.key == stage.key]
            if not after:
                continue
            p99 = _p99_ms(after[0])
            panel.plot([p99_before, p99], [row + offset] * 2, color=color, lw=2, zorder=3)
            panel.plot([p99], [row + offset], "o", ms=6, color=color, zorder=4)
            offset -= 0.16
    names = [shorten(dict(stage.key)["stage"], 18 if layout.narrow else 26) for stage in chosen]
    panel.set_yticks(rows, names)
    panel.set_ylim(-0.7, len(chosen) - 0.4)
    panel.set_xlim(left=0)
    panel.margins(x=0.1)
    panel.tick_params(axis="y", length=0, labelcolor=INK)
    clear_grid(panel, "y")
    panel.set_xlabel("p99 of the stage [ms]")
    write_title(panel, "Which stage it is", layout, width=1.0 if layout.narrow else 0.45)


def _p99_ms(sample: Sample) -> float:
    ordered = np.sort(sample.times_ns)
    return float(ordered[math.ceil(0.99 * len(ordered)) - 1]) / 1e6
