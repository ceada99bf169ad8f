# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Figures of the NeuOS paper, for policies side by side in one scenario.

Energy and latency by network with min-max bars (its figures 7 and 8), accuracy by iteration
(figure 9), the triangle of energy, latency and accuracy (figures 1 and 11); latency and energy of
each instance (figure 5), and accuracy, clocks and LAG stage by stage (figure 4).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from jetson_dnn_rt.cli.figures import figure_settings
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.scenario import Scenario
from jetson_dnn_rt.lab.simulate.session import Source, simulate
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame, Simulation
from jetson_dnn_rt.lab.simulate.tally import Tally, summarize
from jetson_dnn_rt.scheduling.job import lag_ns
from jetson_dnn_rt.tasks import Outcome

# Okabe & Ito's palette, then Paul Tol's muted one: distinct for the colour-blind too.
_COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999",
    "#332288", "#882255", "#44AA99", "#DDCC77", "#AA4499", "#117733", "#88CCEE",
)  # fmt: skip
_COMPLETED = (Outcome.MET, Outcome.LATE)
_TIMELINE_STAGES = 240  # first stages of the first task, which the timeline shows
_MARKERS = "osD^vP*X"
_BINS = 40  # points of the accuracy by iteration
_DEADLINE_COLOR = "#c00000"


@dataclass(frozen=True, eq=False)
class PolicyRun:
    """Run of a policy in a scenario."""

    policy: str
    color: str
    summary: dict[str, Any]  # the JSON of ``jetson-dnn-rt simulate``
    tallies: list[Tally]  # one for each seed
    frames: list[list[SimulatedFrame]]  # of each seed, in the order of completion
    clock_log: list[tuple[int, int]]  # of the first seed

    def select(
        self, tasks: Sequence[str], outcomes: Sequence[Outcome] = tuple(Outcome)
    ) -> list[SimulatedFrame]:
        """Select frames of all seeds, of these tasks and with these outcomes."""
        return [
            frame
            for frames in self.frames
            for frame in frames
            if frame.record.task in tasks and frame.record.outcome in outcomes
        ]


def collect(
    source: Source, policies: Sequence[str], *, seeds: int, frames: int | None
) -> list[PolicyRun]:
    """Run the policies and keep what the figures need."""
    runs = []
    begun: list[Simulation] = []
    for policy, color in zip(policies, cycle(_COLORS), strict=False):
        kept: list[list[SimulatedFrame]] = [[] for _ in range(seeds)]
        tallies = [
            simulate(
                source, policy, seed=seed, frames=frames, observer=ended.append,
                watch=lambda simulation, _: begun.append(simulation),
            )
            for seed, ended in enumerate(kept)
        ]  # fmt: skip
        log = begun[-seeds].clock_log
        runs.append(PolicyRun(policy, color, summarize(tallies), tallies, kept, log))
    return runs


def draw(source: Source, runs: Sequence[PolicyRun], folder: Path) -> list[Path]:
    """Draw all figures that the scenario has data for, as PNGs; return their paths."""
    figures = _Figures(source, runs).select()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with figure_settings():
            return [
                _save(folder, name, draw_it, source.scenario) for name, draw_it in figures.items()
            ]
    except OSError as error:
        raise ConfigurationError(f"cannot write {folder}: {error.strerror}") from error


def _save(folder: Path, name: str, draw_it: Callable[[Any], Any], scenario: Scenario) -> Path:
    """Draw a figure, with the legend of the panel that `draw_it` returns, if any, below it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11, 6.5), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure, None
    if name != "instances":
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


Values = Callable[[PolicyRun, Sequence[str]], list[float]]


def _responses_ms(run: PolicyRun, tasks: Sequence[str]) -> list[float]:
    return [frame.record.response_time_ns / 1e6 for frame in run.select(tasks, _COMPLETED)]


def _energies_mj(run: PolicyRun, tasks: Sequence[str]) -> list[float]:
    return [1e3 * frame.energy_j for frame in run.select(tasks, _COMPLETED)]


def _misses_percent(run: PolicyRun, tasks: Sequence[str]) -> list[float]:
    return [0.0 if f.record.outcome is Outcome.MET else 100.0 for f in run.select(tasks)]


def _draw_bar(
    panel: Any, x: float, found: list[float], color: str, label: str = "", **style: Any
) -> None:
    """Draw a bar of the mean, with whiskers from minimum to maximum; a cross if it is missing."""
    if not found:
        # On the lower edge, whatever the scale.
        cross = {"marker": "x", "color": color, "ls": "", "clip_on": False, "label": label}
        panel.plot([x], [0.0], transform=panel.get_xaxis_transform(), **cross)
        return
    mean = sum(found) / len(found)
    panel.bar(x, mean, color=color, label=label, **style)
    if max(found) > min(found):
        spread = [[mean - min(found)], [max(found) - mean]]
        panel.errorbar(x, mean, spread, color="#444444", lw=1, capsize=2)


def _grid(panel: Any) -> None:
    panel.grid(axis="y", alpha=0.25)
    panel.set_axisbelow(True)


class _Figures:
    """The figures of some policies in one scenario.

    Each method draws into a figure and returns the panel whose legend goes below.
    """

    def __init__(self, source: Source, runs: Sequence[PolicyRun]) -> None:
        self._source = source
        self._runs = runs
        self._deadlines_ms = {table.task: table.deadline_ns / 1e6 for table in source.tables}
        # Names of the tasks by network; of a recording each task is a group of its own.
        self._groups: dict[str, list[str]] = {}
        for task in source.scenario.tasks:
            self._groups.setdefault(task.network, []).append(task.name)
        if not self._groups:
            self._groups = {table.task: [table.task] for table in source.tables}

    def select(self) -> dict[str, Callable[[Any], Any]]:
        """Figures that there is data for, by name."""
        always = (self.energy, self.latency, self.accuracy, self.timeline)
        figures: dict[str, Callable[[Any], Any]] = {each.__name__: each for each in always}
        if any(tally.met for run in self._runs for tally in run.tallies):
            figures["triangle"] = self.triangle
        if any(len(tasks) >= 4 for tasks in self._groups.values()):
            figures["instances"] = self.instances
        return figures

    def _draw_groups(self, panel: Any, values: Values) -> None:
        """Bars by network, side by side for the policies."""
        width = 0.8 / len(self._runs)
        for number, run in enumerate(self._runs):
            for place, tasks in enumerate(self._groups.values()):
                x = place + (number + 0.5) * width - 0.4
                label = run.policy if place == 0 else "_nolegend_"
                _draw_bar(panel, x, values(run, tasks), run.color, label, width=0.9 * width)
        panel.set_xticks(range(len(self._groups)), list(self._groups))
        _grid(panel)

    def _draw_by_policy(self, panel: Any, heights: Sequence[float], texts: Sequence[str]) -> None:
        """One bar for each policy, with its figure above."""
        for number, (run, height, text) in enumerate(zip(self._runs, heights, texts, strict=True)):
            panel.bar(number, height, color=run.color)
            panel.annotate(text, (number, height), ha="center", va="bottom", fontsize=8)
        names = [run.policy for run in self._runs]
        panel.set_xticks(range(len(names)), names, rotation=60, ha="right")
        panel.tick_params(axis="x", labelsize=8)
        _grid(panel)

    def energy(self, figure: Any) -> Any:
        left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (2, 1)})
        self._draw_groups(left, _energies_mj)
        left.set_ylabel("energy of a completed frame while it runs [mJ]")
        values = [run.summary["energy_per_met_frame_j"] for run in self._runs]
        heights = [1e3 * (value or 0.0) for value in values]
        texts = ["none met" if value is None else f"{1e3 * value:.0f}" for value in values]
        self._draw_by_policy(right, heights, texts)
        right.set_ylabel("energy of the board, idle included, per met frame [mJ]")
        return left

    def latency(self, figure: Any) -> Any:
        left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (2, 1)})
        self._draw_groups(left, _responses_ms)
        for place, tasks in enumerate(self._groups.values()):
            style = {"color": _DEADLINE_COLOR, "label": "_nolegend_" if place else "deadline"}
            height = self._deadlines_ms[tasks[0]]
            left.plot([place - 0.45, place + 0.45], [height] * 2, **style)
        left.set_yscale("log")
        left.set_ylabel("response of completed frames [ms]")
        misses = [100.0 * run.summary["miss_ratio"] for run in self._runs]
        self._draw_by_policy(right, misses, [f"{miss:.1f}" for miss in misses])
        right.set_ylabel("frames missed [%]")
        return left

    def accuracy(self, figure: Any) -> Any:
        panel = figure.subplots()
        for run in self._runs:
            met = [f for frames in run.frames for f in frames if f.record.outcome is Outcome.MET]
            if not met:
                panel.plot([], [], color=run.color, label=f"{run.policy}: none")
                continue
            rows = [(frame.record.sequence, frame.accuracy) for frame in met]
            sequences, accuracies = np.array(rows).T
            edges = np.linspace(0, sequences.max() + 1, _BINS + 1)
            places = np.digitize(sequences, edges) - 1
            used = np.unique(places)
            means = [accuracies[places == place].mean() for place in used]
            middles = (edges[used] + edges[used + 1]) / 2
            panel.plot(middles, means, color=run.color, marker=".", lw=1.2, label=run.policy)
        panel.set_xlabel("iteration (frame of the task)")
        panel.set_ylabel("accuracy of the frames that were met")
        panel.grid(alpha=0.25)
        return panel

    def triangle(self, figure: Any) -> Any:
        """Each network under each policy in barycentric coordinates, the three parts summing to 1.

        Latency is relative to the deadline, energy to the most expensive policy of the network,
        accuracy is absolute. In a corner its part is everything: far from energy means low energy.
        """
        whole, near = figure.subplots(1, 2, gridspec_kw={"width_ratios": (1, 1.3)})
        corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3.0) / 2.0]])
        names = (("latency", "right", -12), ("energy", "left", -12), ("accuracy", "center", 8))
        for corner, (name, side, above) in zip(corners, names, strict=True):
            style = {"textcoords": "offset points", "ha": side, "fontsize": 10}
            whole.annotate(name, corner, xytext=(0, above), **style)
        shares = np.arange(0.05, 1.0, 0.05)
        for panel, step in ((whole, 5), (near, 1)):
            panel.plot(*np.vstack([corners, corners[:1]]).T, color="#444444", lw=1)
            for share in shares[step - 1 :: step]:
                for corner in range(3):
                    others = np.delete(corners, corner, axis=0)
                    line = share * corners[corner] + (1.0 - share) * others
                    panel.plot(*line.T, color="#bbbbbb", lw=0.6, ls=":", zorder=0)
            panel.set_aspect("equal")
            panel.set_axis_off()
        points = self._find_triangle_points() @ corners
        for place, network in enumerate(self._groups):
            marker = _MARKERS[place % len(_MARKERS)]
            near.plot([], [], marker=marker, color="#444444", ls="", label=network)
            for number, run in enumerate(self._runs):
                style = {"marker": marker, "color": run.color, "ls": ""}
                point = points[place, number]
                whole.plot(*point, ms=5, **style)
                label = run.policy if place == 0 else "_nolegend_"
                near.plot(*point, ms=8, alpha=0.85, label=label, **style)
        low, high = np.nanmin(points, axis=(0, 1)), np.nanmax(points, axis=(0, 1))
        reach = max(0.6 * float(np.max(high - low)), 0.02)
        (left, bottom), (right, top) = (low + high) / 2 - reach, (low + high) / 2 + reach
        near.set(xlim=(left, right), ylim=(bottom, top))
        near.set_title("the same, enlarged; lines every 0.05", fontsize=9)
        return near

    def _find_triangle_points(self) -> Any:
        """Shares of latency, energy, accuracy, [networks, policies, 3]; NaN where none was met."""
        points = np.full((len(self._groups), len(self._runs), 3), np.nan)
        for place, tasks in enumerate(self._groups.values()):
            energies = [_energies_mj(run, tasks) for run in self._runs]
            dearest = max((sum(e) / len(e) for e in energies if e), default=0.0) or 1.0
            for number, run in enumerate(self._runs):
                responses = _responses_ms(run, tasks)
                met = run.select(tasks, (Outcome.MET,))
                if responses and met:
                    points[place, number] = (
                        sum(responses) / len(responses) / self._deadlines_ms[tasks[0]],
                        sum(energies[number]) / len(energies[number]) / dearest,
                        sum(frame.accuracy for frame in met) / len(met),
                    )
        return points / points.sum(axis=2, keepdims=True)

    def instances(self, figure: Any) -> None:
        tasks = max(self._groups.values(), key=len)
        deadline_ms = self._deadlines_ms[tasks[0]]
        panels = figure.subplots(3, len(self._runs), sharex=True, sharey="row", squeeze=False)
        rows = (_responses_ms, _energies_mj, _misses_percent)
        for column, run in zip(panels.T, self._runs, strict=True):
            for panel, values, color in zip(column, rows, _COLORS, strict=False):
                for place, task in enumerate(tasks):
                    found = values(run, [task])
                    if values is _misses_percent and found:
                        # A share has only a mean.
                        found = [sum(found) / len(found)]
                    _draw_bar(panel, place, found, color)
                _grid(panel)
            column[0].axhline(deadline_ms, color=_DEADLINE_COLOR, lw=1)
            column[0].set_title(run.policy, fontsize=10)
            column[-1].set_xticks(range(len(tasks)), range(1, len(tasks) + 1))
            column[-1].set_xlabel("instance")
        names = ("response of completed\nframes [ms]", "their energy [mJ]", "frames missed [%]")
        for panel, name in zip(panels[:, 0], names, strict=True):
            panel.set_ylabel(name)

    def timeline(self, figure: Any) -> Any:
        """Stage by stage of the first task: accuracy of what runs, clocks, LAG."""
        table = self._source.tables[0]
        worth = 1.0 - table.loss.sum(axis=1)
        speeds = 1.0 / table.slowdown[0].mean(axis=0)
        panels = figure.subplots(3, 1, sharex=True)
        for run in self._runs:
            times = [time for time, _ in run.clock_log]
            rows: list[tuple[float, float, float]] = []
            for frame in run.frames[0]:
                record = frame.record
                if record.task != table.task:
                    continue
                for done, stage in enumerate(record.stages, start=1):
                    clocks = run.clock_log[bisect_right(times, stage.start_ns) - 1][1]
                    lag = lag_ns(table.sub_deadlines_ns, done, stage.end_ns - record.release_ns)
                    variant = table.variants.index(stage.variant)
                    rows.append((worth[variant], speeds[clocks], lag / 1e6))
            for panel, values in zip(panels, np.array(rows[:_TIMELINE_STAGES]).T, strict=False):
                panel.plot(values, color=run.color, lw=1.1, label=run.policy)
        panels[2].axhline(0.0, color=_DEADLINE_COLOR, lw=0.8)
        panels[2].set_xlabel(f"stage of {table.task}, from its first frame on")
        names = (
            "accuracy of the\nvariant that runs",
            "speed of the clocks\nrelative to the fastest",
            "LAG [ms]",
        )
        for panel, name in zip(panels, names, strict=True):
            panel.set_ylabel(name)
            panel.grid(alpha=0.25)
        return panels[0]
