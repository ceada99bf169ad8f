"""The figures of the NeuOS paper, for policies side by side in one scenario.

Energy and latency by network with min-max bars (its figures 7 and 8), accuracy by iteration
(figure 9), the triangle of energy, latency and accuracy (figures 1 and 11); latency and energy of
each instance (figure 5), and accuracy, clocks and LAG stage by stage (figure 4).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.scenario import Scenario
from jetson_dnn_rt.lab.simulate.session import Source, simulate
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame, Simulation
from jetson_dnn_rt.lab.simulate.tally import Tally, summarize
from jetson_dnn_rt.scheduling.lag import lag_ns
from jetson_dnn_rt.tasks import Outcome

# Okabe & Ito's palette, then Paul Tol's muted one: to be told apart by the colour-blind too.
_COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999",
    "#332288", "#882255", "#44AA99", "#DDCC77", "#AA4499", "#117733", "#88CCEE",
)  # fmt: skip
_COMPLETED = (Outcome.MET, Outcome.LATE)
_TIMELINE_STAGES = 240
"""Stages of the first task that the timeline shows, from the beginning."""
_WITHOUT_LEGEND = ("instances",)
_MARKERS = "osD^vP*X"
_BINS = 40
"""Points of the accuracy by iteration."""


@dataclass(frozen=True, eq=False)
class PolicyRun:
    """What a policy did in a scenario.

    Attributes
    ----------
    policy : str
        Its name.
    summary : dict
        The JSON of ``jetson-dnn-rt simulate``.
    tallies : list of Tally
        One for each seed.
    frames : list of list of SimulatedFrame
        Of each seed, in the order of their ends.
    clock_log : list of (int, int)
        Of the first seed.
    """

    policy: str
    summary: dict[str, object]
    tallies: list[Tally]
    frames: list[list[SimulatedFrame]]
    clock_log: list[tuple[int, int]]


def collect(source: Source, policy: str, *, seeds: int, frames: int | None) -> PolicyRun:
    """Run a policy and keep what the figures need."""
    kept: list[list[SimulatedFrame]] = []
    logs: list[list[tuple[int, int]]] = []

    def watch(simulation: Simulation, coordinator: Coordinator) -> None:
        logs.append(simulation.clock_log)

    tallies = []
    for seed in range(seeds):
        kept.append([])
        tallies.append(
            simulate(
                source, policy, seed=seed, frames=frames, observer=kept[-1].append, watch=watch
            )
        )
    return PolicyRun(policy, summarize(tallies), tallies, kept, logs[0])


def draw(source: Source, runs: Sequence[PolicyRun], folder: Path) -> list[Path]:
    """Draw all figures that the scenario has something to show in.

    Parameters
    ----------
    source : Source
        Of the scenario.
    runs : sequence of PolicyRun
        The policies, at least one.
    folder : Path
        Where the PNGs go; it is made.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ConfigurationError
        When the folder cannot be written.
    """
    groups = _group(source)
    figures: dict[str, Callable[[Any], Any]] = {
        "energy": lambda figure: _draw_energy(figure, groups, runs),
        "latency": lambda figure: _draw_latency(figure, groups, runs, source),
        "accuracy": lambda figure: _draw_accuracy(figure, runs),
        "timeline": lambda figure: _draw_timeline(figure, runs, source),
    }
    if any(tally.met for run in runs for tally in run.tallies):
        figures["triangle"] = lambda figure: _draw_triangle(figure, groups, runs, source)
    if any(len(tasks) >= 4 for tasks in groups.values()):
        figures["instances"] = lambda figure: _draw_instances(figure, groups, runs, source)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_save(folder, name, draw_it, source.scenario) for name, draw_it in figures.items()]
    except OSError as error:
        raise ConfigurationError(f"cannot write {folder}: {error.strerror}") from error


def _save(folder: Path, name: str, draw_it: Callable[[Any], Any], scenario: Scenario) -> Path:
    """Draw a figure, with the legend of the panel that `draw_it` returns below it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11, 6.5), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure, None
    if name not in _WITHOUT_LEGEND:
        upper, lower = figure.subfigures(2, 1, height_ratios=(9, 1))
    panel = draw_it(upper)
    if lower is not None:
        handles, labels = panel.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        lower.legend(unique.values(), unique, loc="center", ncol=7, fontsize=8, frameon=False)
    upper.suptitle(scenario.description or scenario.name, fontsize=11)
    path = folder / f"{scenario.name}-{name}.png"
    figure.savefig(path)
    return path


# -- data ----------------------------------------------------------------------------------------


def _group(source: Source) -> dict[str, list[str]]:
    """Names of the tasks by network; of a recording each task for itself."""
    groups: dict[str, list[str]] = {}
    for task in source.scenario.tasks:
        groups.setdefault(task.network, []).append(task.name)
    return groups or {table.task: [table.task] for table in source.tables}


def _frames_of(run: PolicyRun, tasks: Sequence[str]) -> list[SimulatedFrame]:
    wanted = set(tasks)
    return [f for frames in run.frames for f in frames if f.record.task in wanted]


def _responses_ms(run: PolicyRun, tasks: Sequence[str]) -> list[float]:
    return [
        frame.record.response_time_ns / 1e6
        for frame in _frames_of(run, tasks)
        if frame.record.outcome in _COMPLETED
    ]


def _energies_mj(run: PolicyRun, tasks: Sequence[str]) -> list[float]:
    return [
        1e3 * frame.energy_j
        for frame in _frames_of(run, tasks)
        if frame.record.outcome in _COMPLETED
    ]


def _misses_percent(run: PolicyRun, tasks: Sequence[str]) -> list[float]:
    frames = _frames_of(run, tasks)
    return [0.0 if frame.record.outcome is Outcome.MET else 100.0 for frame in frames]


def _deadlines_ms(source: Source) -> dict[str, float]:
    return {table.task: table.deadline_ns / 1e6 for table in source.tables}


# -- figures -------------------------------------------------------------------------------------


def _draw_bars(
    panel: Any,
    groups: dict[str, list[str]],
    runs: Sequence[PolicyRun],
    values: Callable[[PolicyRun, Sequence[str]], list[float]],
) -> None:
    """Bars of the mean, whiskers from least to greatest; a cross where there is nothing."""
    width = 0.8 / len(runs)
    for number, run in enumerate(runs):
        color = _COLORS[number % len(_COLORS)]
        label = run.policy
        for place, tasks in enumerate(groups.values()):
            x = place + (number + 0.5) * width - 0.4
            found = values(run, tasks)
            if not found:
                # On the lower edge, whatever the scale.
                style = {"marker": "x", "color": color, "ls": "", "clip_on": False}
                edge = panel.get_xaxis_transform()
                panel.plot([x], [0.0], transform=edge, label=label, **style)
            else:
                mean = sum(found) / len(found)
                panel.bar(x, mean, 0.9 * width, color=color, label=label)
                spread = [[mean - min(found)], [max(found) - mean]]
                panel.errorbar(x, mean, spread, color="#444444", lw=1, capsize=2)
            label = "_nolegend_"
    panel.set_xticks(range(len(groups)), list(groups))
    panel.grid(axis="y", alpha=0.25)
    panel.set_axisbelow(True)


def _draw_energy(figure: Any, groups: dict[str, list[str]], runs: Sequence[PolicyRun]) -> Any:
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (2, 1)})
    _draw_bars(left, groups, runs, _energies_mj)
    left.set_ylabel("energy of a completed frame while it runs [mJ]")
    for number, run in enumerate(runs):
        value = run.summary["energy_per_met_frame_j"]
        height = 0.0 if value is None else 1e3 * float(str(value))
        right.bar(number, height, color=_COLORS[number % len(_COLORS)])
        text = "none met" if value is None else f"{height:.0f}"
        right.annotate(text, (number, height), ha="center", va="bottom", fontsize=8)
    right.set_xticks(range(len(runs)), [run.policy for run in runs], rotation=60, ha="right")
    right.tick_params(axis="x", labelsize=8)
    right.set_ylabel("energy of the board, idle included, per met frame [mJ]")
    right.grid(axis="y", alpha=0.25)
    right.set_axisbelow(True)
    return left


def _draw_latency(
    figure: Any, groups: dict[str, list[str]], runs: Sequence[PolicyRun], source: Source
) -> Any:
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (2, 1)})
    _draw_bars(left, groups, runs, _responses_ms)
    deadlines_ms = _deadlines_ms(source)
    for place, tasks in enumerate(groups.values()):
        label = "deadline" if place == 0 else "_nolegend_"
        height = deadlines_ms[tasks[0]]
        left.plot([place - 0.45, place + 0.45], [height, height], color="#c00000", label=label)
    left.set_yscale("log")
    left.set_ylabel("response of completed frames [ms]")
    for number, run in enumerate(runs):
        miss = 100.0 * float(str(run.summary["miss_ratio"]))
        right.bar(number, miss, color=_COLORS[number % len(_COLORS)])
        right.annotate(f"{miss:.1f}", (number, miss), ha="center", va="bottom", fontsize=8)
    right.set_xticks(range(len(runs)), [run.policy for run in runs], rotation=60, ha="right")
    right.tick_params(axis="x", labelsize=8)
    right.set_ylabel("frames missed [%]")
    right.grid(axis="y", alpha=0.25)
    right.set_axisbelow(True)
    return left


def _draw_accuracy(figure: Any, runs: Sequence[PolicyRun]) -> Any:
    panel = figure.subplots()
    for number, run in enumerate(runs):
        rows = [
            (frame.record.sequence, frame.accuracy)
            for frames in run.frames
            for frame in frames
            if frame.record.outcome is Outcome.MET
        ]
        if not rows:
            panel.plot([], [], color=_COLORS[number % len(_COLORS)], label=f"{run.policy}: none")
            continue
        sequences, accuracies = np.array(rows).T
        edges = np.linspace(0, sequences.max() + 1, _BINS + 1)
        places = np.digitize(sequences, edges) - 1
        used = np.unique(places)
        means = [accuracies[places == place].mean() for place in used]
        panel.plot(
            (edges[used] + edges[used + 1]) / 2,
            means,
            color=_COLORS[number % len(_COLORS)],
            marker=".",
            lw=1.2,
            label=run.policy,
        )
    panel.set_xlabel("iteration (frame of the task)")
    panel.set_ylabel("accuracy of the frames that were met")
    panel.grid(alpha=0.25)
    return panel


def _draw_triangle(
    figure: Any, groups: dict[str, list[str]], runs: Sequence[PolicyRun], source: Source
) -> Any:
    """Each network under each policy in barycentric coordinates, the three parts adding up to 1.

    Latency is relative to the deadline, energy to the dearest policy of the network; accuracy is
    as it is. A corner means that its part is all there is: far from energy is frugal.
    """
    whole, near = figure.subplots(1, 2, gridspec_kw={"width_ratios": (1, 1.3)})
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3.0) / 2.0]])
    for corner, name, side in zip(
        corners, ("latency", "energy", "accuracy"), ("right", "left", "center"), strict=True
    ):
        above = 8 if name == "accuracy" else -12
        whole.annotate(
            name, corner, xytext=(0, above), textcoords="offset points", ha=side, fontsize=10
        )
    shares = np.arange(0.05, 1.0, 0.05)
    for panel, step in ((whole, 5), (near, 1)):
        panel.plot(*np.vstack([corners, corners[:1]]).T, color="#444444", lw=1)
        for share in shares[step - 1 :: step]:
            for corner in range(3):
                others = [corners[other] for other in range(3) if other != corner]
                line = [share * corners[corner] + (1.0 - share) * other for other in others]
                panel.plot(*np.array(line).T, color="#bbbbbb", lw=0.6, ls=":", zorder=0)
        panel.set_aspect("equal")
        panel.set_axis_off()
    points = _find_triangle_points(groups, runs, source) @ corners
    for place, network in enumerate(groups):
        marker = _MARKERS[place % len(_MARKERS)]
        near.plot([], [], marker=marker, color="#444444", ls="", label=network)
        for number, run in enumerate(runs):
            style = {"marker": marker, "color": _COLORS[number % len(_COLORS)], "ls": ""}
            point = points[place, number]
            whole.plot(*point, ms=5, **style)
            label = run.policy if place == 0 else "_nolegend_"
            near.plot(*point, ms=8, alpha=0.85, label=label, **style)
    middle = (np.nanmax(points, axis=(0, 1)) + np.nanmin(points, axis=(0, 1))) / 2.0
    reach = 0.6 * float(np.max(np.nanmax(points, axis=(0, 1)) - np.nanmin(points, axis=(0, 1))))
    reach = max(reach, 0.02)
    near.set_xlim(middle[0] - reach, middle[0] + reach)
    near.set_ylim(middle[1] - reach, middle[1] + reach)
    near.set_title("the same, nearer; lines every 0.05", fontsize=9)
    return near


def _find_triangle_points(
    groups: dict[str, list[str]], runs: Sequence[PolicyRun], source: Source
) -> Any:
    """Shares of latency, energy and accuracy, [networks, policies, 3]; NaN where none was met."""
    deadlines_ms = _deadlines_ms(source)
    points = np.full((len(groups), len(runs), 3), np.nan)
    for place, tasks in enumerate(groups.values()):
        energies = [_energies_mj(run, tasks) for run in runs]
        dearest = max((sum(e) / len(e) for e in energies if e), default=0.0) or 1.0
        for number, run in enumerate(runs):
            responses = _responses_ms(run, tasks)
            met = [f for f in _frames_of(run, tasks) if f.record.outcome is Outcome.MET]
            if responses and met:
                points[place, number] = (
                    sum(responses) / len(responses) / deadlines_ms[tasks[0]],
                    sum(energies[number]) / len(energies[number]) / dearest,
                    sum(frame.accuracy for frame in met) / len(met),
                )
    return points / points.sum(axis=2, keepdims=True)


def _draw_instances(
    figure: Any, groups: dict[str, list[str]], runs: Sequence[PolicyRun], source: Source
) -> None:
    tasks = max(groups.values(), key=len)
    deadline_ms = _deadlines_ms(source)[tasks[0]]
    panels = figure.subplots(3, len(runs), sharex=True, sharey="row", squeeze=False)
    rows = (_responses_ms, _energies_mj, _misses_percent)
    for column, run in zip(panels.T, runs, strict=True):
        for panel, values, color in zip(column, rows, _COLORS, strict=False):
            for place, task in enumerate(tasks):
                found = values(run, [task])
                if not found:
                    edge = panel.get_xaxis_transform()
                    panel.plot([place], [0.0], "x", color=color, transform=edge, clip_on=False)
                    continue
                mean = sum(found) / len(found)
                panel.bar(place, mean, color=color)
                if values is not _misses_percent:
                    spread = [[mean - min(found)], [max(found) - mean]]
                    panel.errorbar(place, mean, spread, color="#444444", lw=1, capsize=2)
            panel.grid(axis="y", alpha=0.25)
            panel.set_axisbelow(True)
        column[0].axhline(deadline_ms, color="#c00000", lw=1)
        column[0].set_title(run.policy, fontsize=10)
        column[-1].set_xticks(range(len(tasks)), range(1, len(tasks) + 1))
        column[-1].set_xlabel("instance")
    names = ("response of completed\nframes [ms]", "their energy [mJ]", "frames missed [%]")
    for panel, name in zip(panels[:, 0], names, strict=True):
        panel.set_ylabel(name)


def _draw_timeline(figure: Any, runs: Sequence[PolicyRun], source: Source) -> Any:
    """Stage by stage of the first task: the accuracy of what runs, the clocks, LAG."""
    table = source.tables[0]
    worth = 1.0 - table.loss.sum(axis=1)
    speeds = 1.0 / table.slowdown[0].mean(axis=0)
    panels = figure.subplots(3, 1, sharex=True)
    for number, run in enumerate(runs):
        times = [time for time, _ in run.clock_log]
        rows: list[tuple[float, float, float]] = []
        for frame in run.frames[0]:
            record = frame.record
            if record.task != table.task:
                continue
            for done, stage in enumerate(record.stages, start=1):
                clocks = run.clock_log[bisect_right(times, stage.start_ns) - 1][1]
                lag = lag_ns(table.sub_deadlines_ns, done, stage.end_ns - record.release_ns)
                rows.append(
                    (worth[table.variants.index(stage.variant)], speeds[clocks], lag / 1e6)
                )
        for panel, values in zip(panels, zip(*rows[:_TIMELINE_STAGES], strict=True), strict=False):
            panel.plot(values, color=_COLORS[number % len(_COLORS)], lw=1.1, label=run.policy)
    panels[0].set_ylabel("accuracy of the\nvariant that runs")
    panels[1].set_ylabel("speed of the clocks\nrelative to the fastest")
    panels[2].set_ylabel("LAG [ms]")
    panels[2].axhline(0.0, color="#c00000", lw=0.8)
    panels[2].set_xlabel(f"stage of {table.task}, from its first frame on")
    for panel in panels:
        panel.grid(alpha=0.25)
    return panels[0]
