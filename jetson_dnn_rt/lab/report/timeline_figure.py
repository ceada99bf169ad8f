"""Response of every frame over time, with the deadline, and what never gave a result."""

from __future__ import annotations

from typing import Any

import numpy as np

from jetson_dnn_rt.lab.report.misses import find_task_bursts
from jetson_dnn_rt.lab.report.recording import OUTCOMES, Flags, Recording, TaskColumns
from jetson_dnn_rt.lab.report.style import (
    DEADLINE,
    MEASURED,
    OUTCOME_COLORS,
    Layout,
    Picture,
    clear_grid,
    render,
    write_title,
)
from jetson_dnn_rt.lab.report.wording import format_digits, format_ms
from jetson_dnn_rt.tasks import Outcome

MOST_TASKS = 8
MOST_POINTS = 12_000
"""Of the frames that were met; misses are all drawn."""

_RAN = (Outcome.MET, Outcome.LATE, Outcome.ABORTED)
_LANE = 0.055
"""Height of the lane of one outcome without a response, as a share of the panel."""


def draw_timeline(name: str, recording: Recording) -> Picture:
    """Draw a panel for each task, those with most misses first when there are too many."""
    tasks = sorted(recording.tasks.values(), key=lambda task: -task.missed.sum())[:MOST_TASKS]
    tasks.sort(key=lambda task: task.name)

    def draw(figure: Any, layout: Layout) -> None:
        height = 215 if len(tasks) <= 4 else 160
        stacked = Layout(layout.width_px, 1)
        panels = stacked.panels(figure, len(tasks), height, narrow_px=height + 15)
        for panel, task in zip(panels, tasks, strict=True):
            panel.sharex(panels[0])
            _draw_task(panel, task, layout)
        for panel in panels[:-1]:
            panel.tick_params(labelbottom=False)
        panels[-1].set_xlim(0, max(recording.span_ns, 1) / 1e9)
        panels[-1].set_xlabel("time since the first frame [s]")

    alt = "Response time of every frame over time: " + "; ".join(
        f"{task.name}, {task.missed.sum()} of {len(task)} missed" for task in tasks
    )
    return render(name, alt, draw)


def _thin_out(chosen: Flags, heights: Any) -> Any:
    """Places to draw: all of them, or highest, lowest and two others of each short spell."""
    places = np.flatnonzero(chosen)
    if len(places) <= MOST_POINTS:
        return places
    kept = []
    for spell in np.array_split(places, MOST_POINTS // 4):
        # The two others are chosen by place: by height they would draw bands.
        others = spell[[0, len(spell) // 2]]
        kept.append([spell[np.argmin(heights[spell])], spell[np.argmax(heights[spell])], *others])
    return np.unique(np.concatenate(kept))


def _draw_task(panel: Any, task: TaskColumns, layout: Layout) -> None:
    time_s = task.release_ns / 1e9
    response_ms = task.response_ns / 1e6
    deadline_ms = task.deadline_ns / 1e6
    ran = np.isin(task.outcome, [OUTCOMES.index(outcome) for outcome in _RAN])
    highest_deadline = float(deadline_ms.max())
    top = min(float(response_ms[ran].max(initial=highest_deadline)), 3.0 * highest_deadline)
    top = 1.12 * max(top, 1.15 * highest_deadline)
    lanes = [o for o in OUTCOMES if o not in _RAN and task.count(o)]
    bottom = -top * _LANE * (len(lanes) + 0.6) if lanes else 0.0
    panel.set_ylim(bottom, top)
    clear_grid(panel, "x")
    _shade_worst_burst(panel, task)
    panel.plot(time_s, deadline_ms, color=DEADLINE, lw=1.3, drawstyle="steps-post", zorder=3)
    for outcome in _RAN:
        chosen = task.outcome == OUTCOMES.index(outcome)
        met = outcome is Outcome.MET
        places = _thin_out(chosen, response_ms) if met else np.flatnonzero(chosen)
        if len(places):
            panel.plot(
                time_s[places],
                np.minimum(response_ms[places], 0.985 * top),
                "o",
                ms=2.0 if met else 3.6,
                mew=0,
                alpha=0.55 if met else 1.0,
                color=OUTCOME_COLORS[outcome],
                zorder=2 if met else 4,
                rasterized=True,
            )
    for lane, outcome in enumerate(lanes):
        height = -top * _LANE * (lane + 0.75)
        places = np.flatnonzero(task.outcome == OUTCOMES.index(outcome))
        marker = {"color": OUTCOME_COLORS[outcome], "ms": 5, "mew": 1.0}
        panel.plot(time_s[places], np.full(len(places), height), "|", **marker)
    if lanes:
        panel.axhline(0.0, color="#b6bfc8", lw=0.8)
        panel.set_yticks([tick for tick in panel.get_yticks() if 0 <= tick <= top])
        panel.set_ylim(bottom, top)
    _label(panel, task, int((response_ms[ran] > top).sum()), layout)


def _shade_worst_burst(panel: Any, task: TaskColumns) -> None:
    bursts = find_task_bursts(task)
    if bursts.longest > 1:
        start_s = bursts.longest_start_ns / 1e9
        panel.axvspan(start_s, start_s + bursts.longest_ns / 1e9, color="#f9d9d6", lw=0, zorder=0)


def _label(panel: Any, task: TaskColumns, above: int, layout: Layout) -> None:
    panel.set_ylabel("response [ms]")
    counts = [(o, task.count(o)) for o in OUTCOMES if task.count(o)]
    key = [(f"{count:,} {outcome.value}", OUTCOME_COLORS[outcome]) for outcome, count in counts]
    key.append((f"deadline {format_digits(task.usual_deadline_ns / 1e6)} ms", DEADLINE))
    if above:
        key.append((f"{above} higher than shown", MEASURED))
    write_title(panel, task.name, layout, key)


def describe_timeline(task: TaskColumns) -> str:
    """What to look at in a panel, in one sentence."""
    bursts = find_task_bursts(task)
    if not bursts.longest:
        return f"{task.name}: every frame was answered in time."
    return (
        f"{task.name}: the longest time without a result began at "
        f"{bursts.longest_start_ns / 1e9:.1f} s and lasted {format_ms(bursts.longest_ns)}."
    )
