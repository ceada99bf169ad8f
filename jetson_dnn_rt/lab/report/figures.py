# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Figures of a report, each drawn for a screen and for a phone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jetson_dnn_rt.lab.report.budgets import BOUND as BOUND_NAME
from jetson_dnn_rt.lab.report.budgets import HIGHEST, P99, Schedulability
from jetson_dnn_rt.lab.report.conditions import Shift, pair_stages
from jetson_dnn_rt.lab.report.recording import (
    OUTCOMES,
    Recording,
    Spent,
    TaskColumns,
    expect_bursts,
    quantile,
    split_response,
)
from jetson_dnn_rt.lab.report.style import (
    BESIDE,
    BOUND,
    CONDITION_COLORS,
    DEADLINE,
    GRID,
    INK,
    MEASURED,
    MEASURED_PALE,
    MUTED,
    OUTCOME_COLORS,
    PALE,
    VARIANT_COLORS,
    Layout,
    Picture,
    format_thousands,
    mark_deadline,
    name_rows,
    render,
    use_log_shares,
    write_label,
    write_title,
)
from jetson_dnn_rt.lab.report.wording import (
    format_count,
    format_deadlines,
    format_digits,
    format_ms,
    format_share,
)
from jetson_dnn_rt.lab.wcet.samples import Flags, Sample
from jetson_dnn_rt.lab.wcet.statement import Campaign, Support
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.summary import has_quantile

TASK_COLORS = ("#2b6cb0", "#e08e0b", "#2a8c6f", "#b5488f", "#5aa9c9", "#8a6d3b", "#8d99a6")
OTHER = "#b3bcc5"
VALUE: dict[str, Any] = {"fontweight": "bold", "color": INK, "zorder": 6}
TIME = "time since the first frame [s]"
VERDICTS = {True: "fits", False: "does not fit", None: "not proven"}

TIMELINE_TASKS = 8
TIMELINE_POINTS = 12_000
"""Maximum number of met frames drawn; misses are all drawn."""
LONGEST_BURST = 12
"""Bursts of this length or more share the last bar."""
CURVE_POINTS = 1500
"""Points of a survival curve; more would not be visible."""
MOST_STAGES, MOST_COMPARED_STAGES = 28, 14
"""Rows of a figure; where there are more stages, the longest are shown."""

_RAN = (Outcome.MET, Outcome.LATE, Outcome.ABORTED)
_LANE = 0.055
"""Height of the lane of one outcome without a response, as a share of the panel."""

# -- Frames over time ----------------------------------------------------------------------------


def draw_timeline(name: str, recording: Recording) -> Picture:
    """Draw the response of every frame over time, a panel for each task.

    If there are too many tasks, those with most misses are drawn.
    """
    tasks = sorted(recording.tasks.values(), key=lambda task: -task.missed.sum())
    tasks = sorted(tasks[:TIMELINE_TASKS], key=lambda task: task.name)

    def draw(figure: Any, layout: Layout) -> None:
        height = 215 if len(tasks) <= 4 else 160
        stacked = Layout(layout.width_px, 1)
        panels = stacked.panels(figure, len(tasks), height, height + 15)
        for panel, task in zip(panels, tasks, strict=True):
            panel.sharex(panels[0])
            _draw_frames(panel, task, layout)
        for panel in panels[:-1]:
            panel.tick_params(labelbottom=False)
        panels[-1].set(xlim=(0, max(recording.span_ns, 1) / 1e9), xlabel=TIME)

    alt = "Response time of every frame over time: " + "; ".join(
        f"{task.name}, {task.missed.sum()} of {len(task)} missed" for task in tasks
    )
    return render(name, alt, draw)


def _draw_frames(panel: Any, task: TaskColumns, layout: Layout) -> None:
    time_s, response_ms = task.release_ns / 1e9, task.response_ns / 1e6
    deadline_ms = task.deadline_ns / 1e6
    ran = np.isin(task.outcome, [OUTCOMES.index(outcome) for outcome in _RAN])
    highest_deadline = float(deadline_ms.max())
    top = min(float(response_ms[ran].max(initial=highest_deadline)), 3.0 * highest_deadline)
    top = 1.12 * max(top, 1.15 * highest_deadline)
    lanes = [o for o in OUTCOMES if o not in _RAN and task.count(o)]
    bottom = -top * _LANE * (len(lanes) + 0.6) if lanes else 0.0
    panel.set_ylim(bottom, top)
    panel.grid(False, axis="x")
    if task.bursts.longest > 1:
        start_s, length_s = task.bursts.longest_start_ns / 1e9, task.bursts.longest_ns / 1e9
        panel.axvspan(start_s, start_s + length_s, color="#f9d9d6", lw=0, zorder=0)
    panel.plot(time_s, deadline_ms, color=DEADLINE, lw=1.3, drawstyle="steps-post", zorder=3)
    many, single = {"ms": 2.0, "alpha": 0.55, "zorder": 2}, {"ms": 3.6, "zorder": 4}
    for outcome in _RAN:
        chosen = task.outcome == OUTCOMES.index(outcome)
        met = outcome is Outcome.MET
        places = _thin_out(chosen, response_ms) if met else np.flatnonzero(chosen)
        if len(places):
            style = {**(many if met else single), "mew": 0, "color": OUTCOME_COLORS[outcome]}
            shown_ms = np.minimum(response_ms[places], 0.985 * top)
            panel.plot(time_s[places], shown_ms, "o", rasterized=True, **style)
    for lane, outcome in enumerate(lanes):
        places = np.flatnonzero(task.outcome == OUTCOMES.index(outcome))
        heights = np.full(len(places), -top * _LANE * (lane + 0.75))
        panel.plot(time_s[places], heights, "|", color=OUTCOME_COLORS[outcome], ms=5, mew=1.0)
    if lanes:
        panel.axhline(0.0, color="#b6bfc8", lw=0.8)
        panel.set_yticks([tick for tick in panel.get_yticks() if 0 <= tick <= top])
        panel.set_ylim(bottom, top)
    panel.set_ylabel("response [ms]")
    counts = [(o, task.count(o)) for o in OUTCOMES if task.count(o)]
    key = [(f"{count:,} {outcome.value}", OUTCOME_COLORS[outcome]) for outcome, count in counts]
    key.append((f"deadline {format_deadlines(task.deadlines_ns)}", DEADLINE))
    above = int((response_ms[ran] > top).sum())
    if above:
        key.append((f"{above} higher than shown", MEASURED))
    write_title(panel, task.name, layout, key)


def _thin_out(chosen: Flags, heights: Any) -> Any:
    """Choose what to draw: everything, or highest, lowest and two others of each interval."""
    places = np.flatnonzero(chosen)
    if len(places) <= TIMELINE_POINTS:
        return places
    kept = []
    for part in np.array_split(places, TIMELINE_POINTS // 4):
        # The two others are chosen by position: by height they would draw bands.
        others = part[[0, len(part) // 2]]
        kept.append([part[np.argmin(heights[part])], part[np.argmax(heights[part])], *others])
    return np.unique(np.concatenate(kept))


def draw_misses(name: str, task: TaskColumns, span_ns: int) -> Picture | None:
    """Draw misses by kind over time and how many come in a row; None when nothing was missed."""
    if not task.missed.any():
        return None

    def draw(figure: Any, layout: Layout) -> None:
        left, right = layout.panels(figure, 2, 270, 240, widths=(1.5, 1.0))
        _draw_misses_over_time(left, task, span_ns, layout)
        _draw_bursts(right, task, layout)

    alt = (
        f"{format_count(int(task.missed.sum()), 'miss', 'misses')} of {task.name} over time; "
        f"at most {task.bursts.longest} in a row"
    )
    return render(name, alt, draw)


def _draw_misses_over_time(panel: Any, task: TaskColumns, span_ns: int, layout: Layout) -> None:
    count = max(6, min(30 if layout.narrow else 60, len(task) // 4))
    edges = np.linspace(0.0, max(span_ns, 1), count + 1)
    everything = np.histogram(task.release_ns, edges)[0]
    bottom = np.zeros(count)
    words = []
    for code, outcome in enumerate(OUTCOMES):
        if outcome is Outcome.MET or not task.count(outcome):
            continue
        counts = np.histogram(task.release_ns[task.outcome == code], edges)[0]
        share = 100.0 * np.divide(counts, everything, out=np.zeros(count), where=everything > 0)
        color = OUTCOME_COLORS[outcome]
        style = {"align": "edge", "color": color, "lw": 0.4, "edgecolor": "white"}
        panel.bar(edges[:-1] / 1e9, share, np.diff(edges) / 1e9, bottom, **style)
        bottom += share
        words.append((f"■ {outcome.value} {task.count(outcome):,}", color))
    top = min(100.0, max(1.0, 1.1 * float(bottom.max())))
    panel.set(xlim=(0, edges[-1] / 1e9), ylim=(0, top), xlabel=TIME, ylabel="frames missed [%]")
    panel.grid(False, axis="x")
    write_title(panel, "When frames were missed", layout, words, width=0.6)


def _draw_bursts(panel: Any, task: TaskColumns, layout: Layout) -> None:
    from matplotlib.ticker import NullLocator

    bursts = task.bursts
    last = min(LONGEST_BURST, max(4, bursts.longest))
    lengths = np.arange(1, last + 1)
    counts = np.bincount(np.minimum(bursts.lengths, last), minlength=last + 1)[1:]
    chance = expect_bursts(lengths, len(task), float(task.missed.mean()))
    panel.bar(lengths, counts, width=0.66, color=DEADLINE, lw=0)
    panel.plot(lengths, chance, "_", color=INK, ms=17 if last <= 6 else 9, mew=1.8, zorder=4)
    panel.set_yscale("symlog", linthresh=1.0, linscale=0.6)
    panel.yaxis.set_minor_locator(NullLocator())
    panel.set_ylim(0, 3.2 * max(float(counts.max()), max(chance)))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for length, count in zip(lengths, counts, strict=True):
        if count:
            place = float(length), max(count, chance[length - 1])
            write_label(panel, f"{count:,}", place, (0, 4), "center baseline", fontsize=8.2)
    names = [str(length) for length in lengths]
    if bursts.longest > last:
        names[-1] += "+"
    panel.set_xticks(lengths, names)
    panel.tick_params(axis="x", length=0)
    panel.grid(False, axis="x")
    panel.set(xlabel="frames missed in a row", ylabel="how many times")
    title = f"Longest time without a result: {format_ms(bursts.longest_ns)}"
    key = [("■ counted", DEADLINE), ("▬ if misses fell by chance", INK)]
    write_title(panel, title, layout, key, width=0.4)


def share_variants(
    task: TaskColumns, count: int, span_ns: int, most: int = len(VARIANT_COLORS) - 1
) -> tuple[list[str], Any, Any]:
    """Compute each variant's share of the jobs that started in each of `count` intervals.

    Returns
    -------
    names : list of str
        The most used variants, then ``2 others`` where there are more.
    edges_s : float64 [S + 1]
        Of the intervals.
    shares : float64 [V, S]
        NaN in intervals without a job.
    """
    edges = np.linspace(0.0, max(span_ns, 1), count + 1)
    used = np.bincount(task.variant[task.started], minlength=len(task.variants))
    ranked = [int(place) for place in np.argsort(-used, kind="stable") if used[place]]
    names = [task.variants[place] for place in ranked[:most]]
    groups = [[place] for place in ranked[:most]]
    if len(ranked) > most:
        names.append(format_count(len(ranked) - most, "other"))
        groups.append(ranked[most:])
    members = [task.started & np.isin(task.variant, group) for group in groups]
    counts = np.array([np.histogram(task.release_ns[m], edges)[0] for m in members], float)
    counts = counts.reshape(len(groups), count)
    total = counts.sum(axis=0)
    shares = np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)
    return names, edges / 1e9, shares


def draw_variants(name: str, task: TaskColumns, span_ns: int) -> Picture | None:
    """Draw the shares of the variants over time; None when only one ran."""
    used = np.bincount(task.variant[task.started], minlength=len(task.variants))
    if np.count_nonzero(used) < 2:
        return None

    def draw(figure: Any, layout: Layout) -> None:
        (panel,) = layout.panels(figure, 1, 210, 230)
        count = max(8, min(60 if layout.narrow else 120, len(task) // 8))
        names, edges_s, shares = share_variants(task, count, span_ns)
        bottom = np.zeros(count)
        for color, row in zip(VARIANT_COLORS, np.nan_to_num(100.0 * shares), strict=False):
            style = {"width": np.diff(edges_s), "align": "edge", "color": color, "lw": 0}
            panel.bar(edges_s[:-1], row, bottom=bottom, **style)
            bottom += row
        shown = {task.variants[place]: n / used.sum() for place, n in enumerate(used)}
        rest = 1.0 - sum(shown.get(variant, 0.0) for variant in names)
        panel.grid(False, axis="x")
        panel.set(xlabel=TIME, ylabel="frames [%]")
        key = [
            (f"■ {text}  {format_share(shown.get(text, rest))}", color)
            for text, color in zip(names, VARIANT_COLORS, strict=False)
        ]
        write_title(panel, "", layout, key)
        panel.set(xlim=(0, edges_s[-1]), ylim=(0, 100))

    return render(name, f"Variants of {task.name} over time: {', '.join(task.variants[:3])}", draw)


# -- Response ------------------------------------------------------------------------------------


def draw_response(name: str, task: TaskColumns) -> Picture | None:
    """Draw the response against the deadline and its parts; None when no frame finished."""
    spent = split_response(task)
    if not spent:
        return None

    def draw(figure: Any, layout: Layout) -> None:
        left, right = layout.panels(figure, 2, 290, 250, widths=(1.0, 1.25))
        _draw_response_histogram(left, task, layout)
        _draw_response_parts(right, spent, task, layout)

    alt = f"Response of {task.name} against its deadline; " + "; ".join(
        f"{part.title} {format_ms(part.response_ns)}" for part in spent
    )
    return render(name, alt, draw)


def _draw_response_histogram(panel: Any, task: TaskColumns, layout: Layout) -> None:
    measured = task.finished & ~task.warm_up
    # Deadlines may have changed: each response is divided by its own.
    share = 100.0 * task.response_ns[measured] / np.maximum(1, task.deadline_ns[measured])
    ordered = np.sort(share)
    top = min(float(ordered[-1]), max(150.0, 1.2 * float(np.quantile(ordered, 0.995))))
    edges = np.linspace(0.0, max(top, 110.0), 61)
    # A bin ends at the deadline, so that no bar is half red.
    edges = edges * (100.0 / edges[np.searchsorted(edges, 100.0)])
    shown = np.minimum(share, edges[-1] - 1e-9)
    for chosen, color in ((shown <= 100.0, MEASURED), (shown > 100.0, DEADLINE)):
        panel.hist(shown[chosen], bins=edges, color=color, lw=0, alpha=0.88)
    panel.margins(y=0.18)
    panel.set_xlim(0, edges[-1])
    panel.grid(False, axis="x")
    mark_deadline(panel, 100.0, "deadline")
    above = int(np.count_nonzero(share > edges[-1]))
    key = [(f"{above} beyond the scale, in the last bar", DEADLINE)] if above else []
    name = "p99 of the results" if has_quantile(len(ordered), 0.99) else "Slowest result"
    title = f"{name}: {quantile(ordered, 0.99):.0f} % of the deadline"
    write_title(panel, title, layout, key, width=0.45)
    panel.set(xlabel="response as a share of the deadline [%]", ylabel="frames with a result")
    panel.yaxis.set_major_formatter(format_thousands)


def _draw_response_parts(
    panel: Any, spent: list[Spent], task: TaskColumns, layout: Layout
) -> None:
    deadline_ms = task.usual_deadline_ns / 1e6
    rows = name_rows(panel, [part.title for part in spent], 0.5, 0.8)
    left = np.zeros(len(spent))
    key = []
    for text, color, times_ns in (
        ("running", MEASURED, [part.execution_ns for part in spent]),
        ("waiting for other tasks", BESIDE, [part.waiting_ns for part in spent]),
        ("everything else", OTHER, [part.other_ns for part in spent]),
    ):
        widths = [time_ns / 1e6 for time_ns in times_ns]
        panel.barh(rows, widths, left=left, color=color, height=0.52, lw=0)
        left += widths
        key.append((f"■ {text}", MUTED if color == OTHER else color))
    style = {**VALUE, "bbox": {"color": "white", "pad": 1.0}}
    for row, total in zip(rows, left, strict=True):
        write_label(panel, format_ms(total * 1e6), (total, row), (4, 0), "left center", **style)
    room = 1.3 if layout.narrow else 1.16
    panel.set_xlim(0, room * max(float(left.max()), min(deadline_ms, 4.0 * float(left.max()))))
    mark_deadline(panel, deadline_ms, name=task.deadline_title)
    write_title(panel, "Where the time goes", layout, key, width=0.55)
    panel.set_xlabel("response time [ms]")


# -- Execution times -----------------------------------------------------------------------------


def draw_tail(name: str, sample: Sample, campaign: Campaign | None) -> Picture:
    """Draw a sample's distribution and, on a log scale, its tail with the campaign's bounds."""
    ordered_ms = np.sort(sample.times_ns) / 1e6
    deadline_ms = sample.deadline_ns / 1e6

    def draw(figure: Any, layout: Layout) -> None:
        left, right = layout.panels(figure, 2, 350, 300, widths=(1.0, 1.25))
        _draw_distribution(left, ordered_ms, deadline_ms, layout, sample.deadline_title)
        _draw_survival(right, ordered_ms, deadline_ms, campaign, layout, sample.deadline_title)
        if not layout.narrow:
            right.set_ylabel("share of frames that take longer")

    alt = (
        f"Execution times of {sample.title}: {format_count(len(sample), 'frame')}, "
        f"highest seen {format_ms(ordered_ms[-1] * 1e6)}"
    )
    return render(name, alt, draw)


def _draw_distribution(
    panel: Any, ordered_ms: Any, deadline_ms: float, layout: Layout, deadline: str
) -> None:
    count = len(ordered_ms)
    p50, p99 = quantile(ordered_ms, 0.5), quantile(ordered_ms, 0.99)
    low = float(ordered_ms[0])
    # Rare slow frames belong to the other panel: here they would flatten everything else.
    high = min(float(ordered_ms[-1]), max(quantile(ordered_ms, 0.998), low + 3.0 * (p50 - low)))
    margin = max(0.04 * (high - low), 0.01 * high, 1e-6)
    edges = np.linspace(low - margin / 2, high + margin / 2, min(70, max(8, count // 4)) + 1)
    panel.hist(ordered_ms, bins=edges, color=MEASURED, alpha=0.85, lw=0)
    panel.set_xlim(low - 2 * margin, high + 3 * margin)
    panel.margins(y=0.2)
    panel.grid(False, axis="x")
    slow = "p99" if has_quantile(count, 0.99) else "highest"
    for value, text in ((p50, "p50"), (p99, slow)):
        panel.axvline(value, color=INK, lw=1.0, ls=(0, (3, 2)), ymax=0.86)
        style: dict[str, Any] = {"fontsize": 8.2, "linespacing": 1.1, "zorder": 6}
        style |= {"xycoords": panel.get_xaxis_transform(), "bbox": {"color": "white", "pad": 0.8}}
        label = f"{text}\n{format_digits(value)}"
        write_label(panel, label, (value, 0.87), align="center bottom", **style)
    beyond = int(np.count_nonzero(ordered_ms > edges[-1]))
    title = "Most frames"
    if beyond:
        title += f" ({format_count(beyond, 'slower one')} not shown)"
    write_title(panel, title, layout, width=0.45)
    panel.set(xlabel="execution time [ms]", ylabel="frames")
    panel.yaxis.set_major_formatter(format_thousands)
    if deadline_ms and low <= deadline_ms <= panel.get_xlim()[1]:
        mark_deadline(panel, deadline_ms, f"{deadline} {format_digits(deadline_ms)}", top=0.8)


def survival(ordered: Any, points: int = CURVE_POINTS) -> tuple[Any, Any]:
    """Compute times and the share of values that are at least as long, [M] each.

    `ordered` is ascending. About `points` at most are returned: all of the tail, fewer where the
    curve is dense.
    """
    count = len(ordered)
    if count > points:
        ranks = np.geomspace(1, count, points)
        places = np.unique(count - np.minimum(count, np.round(ranks)).astype(np.int64))
    else:
        places = np.arange(count)
    return ordered[places], (count - places) / count


def _draw_survival(
    panel: Any,
    ordered_ms: Any,
    deadline_ms: float,
    campaign: Campaign | None,
    layout: Layout,
    deadline: str,
) -> None:
    count = len(ordered_ms)
    times, shares = survival(ordered_ms)
    low, highest = float(ordered_ms[0]), float(ordered_ms[-1])
    bounds = [b for b in campaign.bounds if math.isfinite(b.upper_ns)] if campaign else []
    rightmost = max([highest, *(b.upper_ns / 1e6 for b in bounds)])
    span = max(rightmost - low, 0.02 * rightmost, 1e-6)
    right = rightmost + 0.2 * span
    if deadline_ms and rightmost < deadline_ms < rightmost + 0.6 * span:
        right = deadline_ms + 0.06 * span
    panel.set_xlim(low - 0.04 * span, right)
    floor = min([1.0 / count, *(b.exceedance for b in bounds)]) / 6.0
    use_log_shares(panel, floor)
    panel.axhspan(floor, 1.0 / count, color=PALE, zorder=0, lw=0)
    on_pale: dict[str, Any] = {"zorder": 6, "bbox": {"color": PALE, "pad": 0.6}}
    unseen = f"rarer than 1 in {count:,}: never seen"
    style = {"transform": panel.transAxes, "color": MUTED, "fontsize": 8.0, "va": "bottom"}
    panel.text(0.012, 0.03, unseen, **style, **on_pale)
    panel.plot(times, shares, color=MEASURED, drawstyle="steps-post", zorder=4)
    panel.plot([highest], [1.0 / count], "o", color=MEASURED, ms=6, zorder=5)
    crowded = highest > low + 0.4 * (right - low)
    offset, align = ((-7, -2), "right top") if crowded else ((8, 0), "left center")
    text = f"highest seen {format_digits(highest)} ms"
    place = highest, 1.0 / count
    write_label(panel, text, place, offset, align, color=MEASURED, **on_pale)
    _draw_bounds(panel, bounds)
    if deadline_ms:
        mark_deadline(panel, deadline_ms, name=deadline)
    key = []
    if campaign and bounds:
        key = [(f"◆ pWCET, upper bound at {100 * campaign.confidence:.0f} %", BOUND)]
    elif campaign and campaign.support is Support.UNPROVEN:
        key = [("unproven: no bound is given", BOUND)]
    write_title(panel, "How often a frame takes longer", layout, key, width=0.55)
    panel.set_xlabel("execution time [ms]")


def _draw_bounds(panel: Any, bounds: list[Any]) -> None:
    tops = [bound.upper_ns / 1e6 for bound in bounds]
    shares = [bound.exceedance for bound in bounds]
    panel.plot(tops, shares, color=BOUND, lw=1.2, ls=(0, (4, 2)), zorder=3)
    for bound, share, top in zip(bounds, shares, tops, strict=True):
        if math.isfinite(bound.estimate_ns):
            panel.plot([bound.estimate_ns / 1e6, top], [share] * 2, color=BOUND, lw=1, zorder=3)
        face = BOUND if bound.support is Support.SUPPORTED else "white"
        panel.plot([top], [share], "D", ms=6, color=BOUND, mfc=face, zorder=5)
        write_label(panel, format_digits(top), (top, share), (6, 5), **{**VALUE, "color": BOUND})


def choose_stages(stages: Sequence[Sample], most: int = MOST_STAGES) -> list[Sample]:
    """Choose those with the longest mean times, in the order they were given."""
    ranked = sorted(stages, key=lambda stage: -float(stage.times_ns.mean()))[:most]
    return [stage for stage in stages if any(stage is kept for kept in ranked)]


def draw_stages(name: str, stages: Sequence[Sample]) -> Picture:
    """Draw execution times of a variant's stages (or layers), the first one at the top."""
    shown = choose_stages(stages)
    means_ns = [float(stage.times_ns.mean()) for stage in stages]
    total_ns = sum(means_ns)
    rest = len(stages) - len(shown)

    def draw(figure: Any, layout: Layout) -> None:
        height = 92 + 27 * len(shown)
        (panel,) = layout.panels(figure, 1, height, height)
        _draw_boxes(panel, shown, total_ns, narrow=layout.narrow)
        if rest:
            left_ns = total_ns - sum(float(stage.times_ns.mean()) for stage in shown)
            panel.set_title(
                f"the {len(shown)} longest; {format_count(rest, 'other')} together "
                f"{format_digits(left_ns / 1e6)} ms on average",
                fontweight="normal",
            )

    longest = dict(stages[int(np.argmax(means_ns))].key)["stage"]
    alt = f"Execution times of {len(stages)} stages; {longest} is the longest"
    return render(name, alt, draw)


def _draw_boxes(panel: Any, stages: Sequence[Sample], total_ns: float, *, narrow: bool) -> None:
    names = [shorten(dict(stage.key)["stage"], 18 if narrow else 44) for stage in stages]
    rows = name_rows(panel, names, 0.6, 0.6)
    highest = 0.0
    shown: tuple[str, ...] = ()
    for row, stage in zip(rows, stages, strict=True):
        ordered = np.sort(stage.times_ns) / 1e6
        p1, p25, p50, p75, p99 = (quantile(ordered, q) for q in (0.01, 0.25, 0.5, 0.75, 0.99))
        top = float(ordered[-1])
        highest = max(highest, top)
        panel.plot([p1, p99], [row, row], color=MEASURED, lw=1.2, zorder=3)
        for edge in (p1, p99):
            panel.plot([edge, edge], [row - 0.16, row + 0.16], color=MEASURED, lw=1.2, zorder=3)
        panel.barh(row, p75 - p25, left=p25, height=0.56, color=MEASURED_PALE, lw=0, zorder=3)
        panel.plot([p50, p50], [row - 0.28, row + 0.28], color=INK, lw=1.8, zorder=4)
        panel.plot([top], [row], "o", ms=4.2, mfc="white", mec=MEASURED, mew=1.2, zorder=4)
        figures = {
            "p50": format_digits(p50),
            "p99": format_digits(p99) if has_quantile(len(ordered), 0.99) else "–",
            "highest": format_digits(top),
            "share": format_share(float(stage.times_ns.mean()) / total_ns if total_ns else 0.0),
        }
        shown = ("p50", "share") if narrow else tuple(figures)
        _write_columns(panel, row, [figures[column] for column in shown])
    _write_columns(panel, len(stages) - 0.4, shown, bold=True)
    panel.set(xlim=(0, 1.04 * highest), xlabel="execution time [ms]")


def _write_columns(panel: Any, row: float, cells: Sequence[str], *, bold: bool = False) -> None:
    """Write figures in columns of 40 points to the right of the panel."""
    weight = "bold" if bold else "normal"
    style: dict[str, Any] = {"fontsize": 8.0, "color": MUTED, "fontweight": weight}
    style |= {"xycoords": panel.get_yaxis_transform(), "annotation_clip": False}
    for place, cell in enumerate(cells, start=1):
        # The last column is part of the layout, which keeps room for all of them.
        text = cell if place < len(cells) else " " * 8 + cell
        write_label(panel, text, (1.0, row), (place * 40, 0), "right center", **style)


def shorten(text: str, length: int) -> str:
    """Keep the end of a long name: layers differ there."""
    return text if len(text) <= length else "…" + text[1 - length :]


def draw_conditions(
    name: str, recordings: Sequence[Recording], shifts: Sequence[Shift]
) -> Picture:
    """Draw one campaign under all conditions: its tails, and the p99 of its stages.

    The shifts are of one task and variant, each against the first recording.
    """
    shown = list(shifts[: len(CONDITION_COLORS) - 1])
    others = {recording.label: recording for recording in recordings[1:]}
    before = shown[0].before
    stages = [pair_stages(recordings[0], others[shift.condition], before) for shift in shown]
    chosen = choose_stages([first for first, _ in stages[0]], MOST_COMPARED_STAGES)

    def draw(figure: Any, layout: Layout) -> None:
        height = max(330, 110 + 30 * len(chosen))
        count = 2 if chosen else 1
        panels = layout.panels(figure, count, height, 320, widths=(1.25, 1.0))
        _draw_tails(panels[0], recordings[0].label, shown, layout)
        if chosen:
            _draw_stage_shifts(panels[1], chosen, stages, layout)

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
        top, rarest = float(ordered_ms[-1]), 1.0 / len(ordered_ms)
        panel.plot(*survival(ordered_ms), color=color, drawstyle="steps-post")
        panel.plot([top], [rarest], "o", color=color, ms=5)
        highest, floor = max(highest, top), min(floor, rarest)
        key.append((f"■ {text}  highest {format_digits(top)} ms", color))
    use_log_shares(panel, floor / 2.5)
    low = min(float(sample.times_ns.min()) for sample in samples) / 1e6
    margin = 0.05 * max(highest - low, 0.02 * highest)
    deadline_ms = shifts[0].before.deadline_ns / 1e6
    right = highest + margin
    if highest < deadline_ms < highest + 10 * margin:
        right = deadline_ms + margin
    panel.set(xlim=(low - margin, right), xlabel="execution time [ms]")
    if deadline_ms:
        mark_deadline(panel, deadline_ms, name=shifts[0].before.deadline_title)
    write_title(panel, "How often a frame takes longer", layout, key, width=0.55)


def _draw_stage_shifts(
    panel: Any,
    chosen: Sequence[Sample],
    stages: Sequence[Sequence[tuple[Sample, Sample]]],
    layout: Layout,
) -> None:
    names = [shorten(dict(stage.key)["stage"], 18 if layout.narrow else 26) for stage in chosen]
    rows = name_rows(panel, names, 0.7, 0.6)
    for row, stage in zip(rows, chosen, strict=True):
        p99_before = quantile(np.sort(stage.times_ns), 0.99) / 1e6
        panel.plot([p99_before], [row], "o", ms=6, color=CONDITION_COLORS[0], zorder=5)
        offset = 0.0
        for pairs, color in zip(stages, CONDITION_COLORS[1:], strict=False):
            after = [other for first, other in pairs if first.key == stage.key]
            if not after:
                continue
            p99 = quantile(np.sort(after[0].times_ns), 0.99) / 1e6
            panel.plot([p99_before, p99], [row + offset] * 2, color=color, lw=2, zorder=3)
            panel.plot([p99], [row + offset], "o", ms=6, color=color, zorder=4)
            offset -= 0.16
    panel.set_xlim(left=0)
    panel.margins(x=0.1)
    panel.set_xlabel("p99 of the stage [ms]")
    write_title(panel, "Which stage it is", layout, width=0.45)


# -- Budgets -------------------------------------------------------------------------------------


def draw_budgets(name: str, result: Schedulability) -> Picture:
    """Draw budgets against deadlines by task, and the load of the machine by budget."""

    def draw(figure: Any, layout: Layout) -> None:
        rows = max(len(result.needs), len(result.verdicts))
        sizes = 130 + 46 * rows, 150 + 44 * rows
        left, right = layout.panels(figure, 2, *sizes, widths=(1.2, 1.0))
        _draw_needs(left, result, layout)
        _draw_load(right, result, layout)

    alt = "; ".join(
        f"with {budget} budgets: {VERDICTS[verdict.schedulable]}"
        for budget, verdict in result.verdicts.items()
    )
    return render(name, alt, draw)


def _draw_needs(panel: Any, result: Schedulability, layout: Layout) -> None:
    rows = name_rows(panel, list(result.needs), 0.65, 0.65)
    right = 0.0
    for row, needs in zip(rows, result.needs.values(), strict=True):
        budgets = {name: value / 1e6 for name, value in needs.budgets_ns.items()}
        deadline_ms = needs.deadline_ns / 1e6
        panel.barh(row, deadline_ms, height=0.5, color=GRID, lw=0, zorder=1)
        panel.plot([deadline_ms] * 2, [row - 0.33, row + 0.33], color=DEADLINE, lw=2, zorder=4)
        panel.barh(
            row, budgets[result.least_careful], height=0.5, color=MEASURED_PALE, lw=0, zorder=2
        )
        panel.plot([budgets[HIGHEST]], [row], "o", ms=7, color=MEASURED, zorder=5)
        if BOUND_NAME in budgets:
            panel.plot([budgets[BOUND_NAME]], [row], "D", ms=6, color=BOUND, zorder=5)
        right = max(right, deadline_ms, *budgets.values())
        least = needs.least_deadline_ns[HIGHEST]
        if least is not None:
            right = max(right, min(least / 1e6, 3.0 * deadline_ms))
            if least / 1e6 <= right:
                panel.plot([least / 1e6], [row - 0.38], "^", ms=7, color=INK, zorder=5)
    panel.set(xlim=(0, 1.06 * right), xlabel="time [ms]")
    key = [
        *([("■ p99", "#7fa9d6")] if P99 in result.verdicts else []),
        ("● highest seen", MEASURED),
        *([("◆ pWCET", BOUND)] if BOUND_NAME in result.verdicts else []),
        ("| deadline", DEADLINE),
        ("▲ least deadline that would fit", INK),
    ]
    write_title(panel, "Execution budgets and deadlines", layout, key, width=0.54)


def _draw_load(panel: Any, result: Schedulability, layout: Layout) -> None:
    names = list(result.verdicts)
    rows = name_rows(panel, names, 0.5, 0.8)
    left = np.zeros(len(names))
    key = []
    for number, (task, needs) in enumerate(result.needs.items()):
        color = TASK_COLORS[min(number, len(TASK_COLORS) - 1)]
        loads = np.array([100.0 * needs.budgets_ns[b] / needs.period_ns for b in names])
        panel.barh(rows - 0.06, loads, left=left, height=0.36, color=color, lw=0, zorder=2)
        left += loads
        if number < len(TASK_COLORS):
            text = f"■ {task}" if number < len(TASK_COLORS) - 1 else "■ others"
            key.append((text, color))
    capacity = 100.0 * result.workers
    style = {**VALUE, "bbox": {"color": "white", "pad": 0.4}}
    for row, budget, load in zip(rows, names, left, strict=True):
        text = f"{format_share(load / 100.0)}: {VERDICTS[result.verdicts[budget].schedulable]}"
        write_label(panel, text, (0, row + 0.14), (2, 2), "left bottom", **style)
    panel.axvline(capacity, color=DEADLINE, lw=1.6, zorder=4)
    panel.set_xlim(0, 1.06 * max(capacity, float(left.max())))
    panel.set_xlabel("load of the machine with this budget [%]")
    title = f"Do all fit together on {format_count(result.workers, 'worker')}?"
    write_title(panel, title, layout, [*key, ("| all there is", DEADLINE)], width=0.46)
