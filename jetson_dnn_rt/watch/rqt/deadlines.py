# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The rqt plugin *Deadlines*: frames against their deadlines, misses, variants and clocks."""

from __future__ import annotations

import html
import math
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyqtgraph
from python_qt_binding.QtCore import Qt, QTimer
from python_qt_binding.QtGui import QColor, QPalette
from python_qt_binding.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QScrollArea,
    QSplitter,
    QVBoxLayout,
    QWidget,
)
from rqt_gui_py.plugin import Plugin

from jetson_dnn_rt.watch.graph import MISSES, OUTCOMES, Graph, GraphView, TaskView
from jetson_dnn_rt.watch.rqt.main import add_deadlines_arguments
from jetson_dnn_rt.watch.rqt.series import (
    WINDOW_S,
    ClockHistory,
    count_outcomes,
    find_deadline,
    find_points,
    find_variants,
    write_csv,
)
from jetson_dnn_rt.watch.subscriber import GraphSubscriber

REDRAW_MS = 200

LARGEST_SHARE = 0.25
"""Of a core, for drawing: where it takes longer, it is done less often."""

SHOWN_AT_FIRST = 6
"""Tasks that are checked when they appear; the others wait in the list."""

ROW_HEIGHT = 130

# Okabe and Ito's colours, which people with any colour vision tell apart; symbols of pyqtgraph.
LOOKS = {
    "met": ("#009E73", "o", 4),
    "late": ("#D55E00", "o", 7),
    "skipped": ("#E69F00", "x", 7),
    "aborted": ("#CC79A7", "t", 7),
    "superseded": ("#56B4E9", "+", 7),
    "failed": ("#D00000", "s", 7),
}
SIGNS = {"o": "●", "x": "✕", "t": "▼", "+": "+", "s": "■"}
CURVES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BANDS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#F0E442", "#D55E00")

BAND = (-0.16, -0.06)
"""Where the variants are, in shares of the height above zero."""

HIGHEST = 5.0
"""Height of a task's plot in deadlines, at most; its title has the number of frames above."""

SHORTEST_LABEL_S = 5.0
"""A variant that ran for less has its colour only."""


class Deadlines(Plugin):
    """Plugin of rqt: its node finds the tasks, its window shows them."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.setObjectName("Deadlines")
        parser = ArgumentParser(prog="deadlines", add_help=False)
        add_deadlines_arguments(parser)
        namespace = parser.parse_args(context.argv()).namespace
        graph = Graph()
        self._widget = DeadlinesWidget(graph)
        number = context.serial_number()
        self._widget.setWindowTitle("Deadlines" + (f" ({number})" if number > 1 else ""))
        context.add_widget(self._widget)
        # rqt spins its node on a thread of its own; the graph is what both threads know.
        self._subscriber = GraphSubscriber(context.node, graph, namespace)

    def shutdown_plugin(self) -> None:
        """Stop drawing and listening."""
        self._widget.stop()
        self._subscriber.close()

    def save_settings(self, _plugin_settings: Any, instance_settings: Any) -> None:
        """Save which tasks are hidden."""
        instance_settings.set_value("hidden", "\n".join(sorted(self._widget.hidden)))

    def restore_settings(self, _plugin_settings: Any, instance_settings: Any) -> None:
        """Hide the tasks that were hidden."""
        self._widget.hide_tasks(str(instance_settings.value("hidden", "") or "").split("\n"))


class DeadlinesWidget(QWidget):
    """Plots of the last minute of a graph, redrawn until `stop`."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.setObjectName("DeadlinesWidget")
        self.hidden: set[str] = set()
        self._graph, self._view = graph, graph.snapshot()
        self._clocks = ClockHistory()
        self._rows: dict[str, _TaskRow] = {}
        self._order: list[pyqtgraph.PlotItem] = []
        self._following = True

        self._pause = QPushButton("Pause")
        self._pause.setCheckable(True)
        self._follow = QPushButton("Last minute")
        self._follow.setToolTip(
            "End zooming: drag to move, turn the wheel to zoom, on one axis too"
        )
        self._follow.clicked.connect(self.follow)
        save = QPushButton("Save ...")
        save.setToolTip("The plots as a picture, or their frames as CSV")
        save.clicked.connect(self._ask_file)
        self._status = QLabel()
        # Texts of the network are in it: Qt takes those that look like HTML for that.
        self._status.setTextFormat(Qt.TextFormat.PlainText)
        bar = QHBoxLayout()
        for button in (self._pause, self._follow, save):
            bar.addWidget(button)
        bar.addWidget(self._status, stretch=1)

        self._list = QListWidget()
        self._list.itemChanged.connect(self._take_check)
        self._canvas = pyqtgraph.GraphicsLayoutWidget()
        self._canvas.setBackground(self.palette().color(QPalette.ColorRole.Base))
        self._page = QWidget()
        column = QVBoxLayout(self._page)
        column.setContentsMargins(0, 0, 0, 0)
        looks = QLabel(_describe_looks())
        looks.setWordWrap(True)
        column.addWidget(looks)
        column.addWidget(self._canvas, stretch=1)
        scrolled = QScrollArea()
        scrolled.setWidgetResizable(True)
        scrolled.setWidget(self._page)
        parts = QSplitter()
        parts.addWidget(self._list)
        parts.addWidget(scrolled)
        parts.setSizes([150, 850])
        parts.setStretchFactor(1, 1)
        whole = QVBoxLayout(self)
        whole.addLayout(bar)
        whole.addWidget(parts, stretch=1)
        self.setMinimumSize(640, 400)  # rqt opens as small as it can

        self._misses = _MissesRow(self)
        self._clock_row = _ClockRow(self)
        self._arrange([])
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._tick)
        self._timer.start(0)

    def stop(self) -> None:
        """Draw no more."""
        self._timer.stop()

    def follow(self) -> None:
        """Show the last minute again, after zooming."""
        self._following = True
        self.redraw()

    def hide_tasks(self, names: Sequence[str]) -> None:
        """Hide these tasks only."""
        self.hidden = set(names) - {""}
        self.redraw()

    def save(self, file: Path) -> None:
        """Save the plots as ``.png``, or the frames of the tasks shown as ``.csv``."""
        if file.suffix == ".csv":
            write_csv(file, self._shown(), self._view.at_ns)
        elif file.suffix != ".png":
            raise ValueError(f"the name must end in .png or .csv: {file.name}")
        elif not self._page.grab().save(str(file)):
            raise OSError(f"cannot write {file}")

    def make_plot(self, label: str) -> pyqtgraph.PlotItem:
        """Make a plot over the last minute, in the colours of the desktop."""
        plot = pyqtgraph.PlotItem()
        color = self.palette().color(QPalette.ColorRole.Text)
        for side in ("left", "bottom"):
            axis = plot.getAxis(side)
            axis.setPen(color)
            axis.setTextPen(color)
        plot.getAxis("left").setWidth(60)  # the same for all: their times are below each other
        plot.getAxis("left").enableAutoSIPrefix(False)
        plot.setLabel("left", label)
        plot.showGrid(x=True, y=True, alpha=0.2)
        plot.hideButtons()
        plot.setMinimumHeight(ROW_HEIGHT)
        plot.vb.disableAutoRange()
        plot.vb.sigRangeChangedManually.connect(self._end_following)
        return plot

    def redraw(self) -> None:
        """Draw the present view; a paused one has not changed, its window may have."""
        tasks = self._shown()
        clocks = self._clocks.curves(self._view.at_ns)
        for name in set(self._rows) - {task.name for task in tasks}:
            del self._rows[name]
        for task in tasks:
            if task.name not in self._rows:
                self._rows[task.name] = _TaskRow(self)
            self._rows[task.name].draw(task, self._view.at_ns, self._following)
        self._misses.draw(tasks, self._view.at_ns, self._following)
        self._clock_row.draw(clocks, self._following)
        plots = [self._rows[task.name].plot for task in tasks] + [self._misses.plot]
        self._arrange([*plots, self._clock_row.plot] if clocks else plots)
        if self._following:
            self._misses.plot.setXRange(-WINDOW_S, 0.0, padding=0.01)
        self._follow.setEnabled(not self._following)
        self._list_tasks()
        self._status.setText(_describe(self._view))

    def _tick(self) -> None:
        begin = time.thread_time()
        view = self._graph.snapshot()
        self._clocks.add(view)
        if not self._pause.isChecked():
            self._view = view
            if self.isVisible():
                self.redraw()
                self._canvas.viewport().repaint()  # now, so that it is measured
        taken_ms = (time.thread_time() - begin) * 1e3
        self._timer.start(max(REDRAW_MS, math.ceil(taken_ms / LARGEST_SHARE)))

    def _shown(self) -> list[TaskView]:
        listed = {self._list.item(n).text() for n in range(self._list.count())}
        shown: list[TaskView] = []
        for task in self._view.tasks:
            if task.name not in listed and len(shown) >= SHOWN_AT_FIRST:
                self.hidden.add(task.name)
            if task.name not in self.hidden:
                shown.append(task)
        return shown

    def _arrange(self, plots: list[pyqtgraph.PlotItem]) -> None:
        if plots == self._order:
            return
        self._order = plots
        self._canvas.clear()
        for row, plot in enumerate(plots):
            self._canvas.addItem(plot, row, 0)
            plot.setLabel("bottom", "time from now (s)" if row == len(plots) - 1 else None)
            if plot is not self._misses.plot:
                plot.setXLink(self._misses.plot)
        self._canvas.setMinimumHeight(ROW_HEIGHT * len(plots))

    def _list_tasks(self) -> None:
        self._list.blockSignals(True)
        names = [task.name for task in self._view.tasks]
        if names != [self._list.item(n).text() for n in range(self._list.count())]:
            self._list.clear()
            self._list.addItems(names)
        for n, task in enumerate(self._view.tasks):
            item = self._list.item(n)
            state = Qt.CheckState.Unchecked if task.name in self.hidden else Qt.CheckState.Checked
            item.setCheckState(state)
            font = item.font()
            font.setStrikeOut(not task.present)
            item.setFont(font)
            item.setToolTip("" if task.present else "gone: nothing publishes its frames")
        self._list.blockSignals(False)

    def _take_check(self, item: QListWidgetItem) -> None:
        if item.checkState() == Qt.CheckState.Checked:
            self.hidden.discard(item.text())
        else:
            self.hidden.add(item.text())
        self.redraw()

    def _end_following(self, *_: Any) -> None:
        self._following = False
        self._follow.setEnabled(True)

    def _ask_file(self) -> None:
        kinds = "Picture (*.png);;Frames (*.csv)"
        name, _ = QFileDialog.getSaveFileName(self, "Save", "deadlines.png", kinds)
        if name:
            try:
                self.save(Path(name))
            except (OSError, ValueError) as error:
                self._status.setText(str(error))


class _TaskRow:
    """Response times of a task by outcome, its deadline, and below them its variants."""

    def __init__(self, widget: DeadlinesWidget) -> None:
        self.plot = widget.make_plot("response (ms)")
        text = widget.palette().color(QPalette.ColorRole.Text)
        self._deadline = pyqtgraph.PlotCurveItem(pen=pyqtgraph.mkPen(text, width=1.5))
        self.plot.addItem(self._deadline)
        self._points = {}
        for outcome, (color, symbol, size) in LOOKS.items():
            pen = pyqtgraph.mkPen(color) if symbol in "x+" else None
            self._points[outcome] = pyqtgraph.ScatterPlotItem(
                size=size, symbol=symbol, pen=pen, brush=color
            )
            self.plot.addItem(self._points[outcome])
        self._band = pyqtgraph.BarGraphItem(x0=[], x1=[], y0=0, height=0)
        self.plot.addItem(self._band)
        self._labels: list[pyqtgraph.TextItem] = []
        self._text = text

    def draw(self, task: TaskView, at_ns: int, following: bool) -> None:
        deadline = find_deadline(task, at_ns)
        self._deadline.setData(*deadline)
        points = [find_points(task, number, at_ns) for number in range(len(OUTCOMES))]
        for outcome, (times_s, values) in zip(OUTCOMES, points, strict=True):
            self._points[outcome].setData(times_s, values)
        every = np.concatenate([values for _, values in points])
        longest = float(deadline[1].max(initial=0.0))
        top = 1.15 * max(longest, float(every.max(initial=0.0))) or 1.0
        # One frame that took seconds would flatten all others.
        top = min(top, HIGHEST * longest or math.inf)
        self._draw_variants(find_variants(task, at_ns), task.variants, top)
        title = _describe_task(task)
        if above := int((every > top).sum()):
            title += f" &nbsp; {above} above"
        self.plot.setTitle(title, size="9pt", color=self._text)
        # A title asks for its width, and would push the newest frames out of a narrow window.
        self.plot.titleLabel.setMinimumWidth(0)
        if following:
            self.plot.setYRange(1.2 * BAND[0] * top, top, padding=0)

    def _draw_variants(
        self, spans: list[tuple[float, float, str]], names: Sequence[str], top: float
    ) -> None:
        low, high = (top * share for share in BAND)
        colors = [QColor(BANDS[names.index(name) % len(BANDS)]) for _, _, name in spans]
        for color in colors:
            color.setAlphaF(0.45)
        self._band.setOpts(
            x0=[begin for begin, _, _ in spans],
            x1=[end for _, end, _ in spans],
            y0=low,
            height=high - low,
            brushes=colors,
            pen=None,
        )
        labels = [span for span in spans if span[1] - span[0] >= SHORTEST_LABEL_S]
        while len(self._labels) < len(labels):
            self._labels.append(pyqtgraph.TextItem(color=self._text, anchor=(0.5, 0.5)))
            self.plot.addItem(self._labels[-1], ignoreBounds=True)
        while len(self._labels) > len(labels):
            self.plot.removeItem(self._labels.pop())
        for item, (begin, end, name) in zip(self._labels, labels, strict=True):
            item.setText(name)
            item.setPos((begin + end) / 2, (low + high) / 2)


class _MissesRow:
    """Deadline misses of the tasks shown, each second, stacked by outcome."""

    def __init__(self, widget: DeadlinesWidget) -> None:
        self.plot = widget.make_plot("misses per s")
        self._bars = {}
        for number in MISSES:
            color = LOOKS[OUTCOMES[number]][0]
            self._bars[number] = pyqtgraph.BarGraphItem(
                x0=[], width=0.9, y0=[], height=[], brush=color, pen=None
            )
            self.plot.addItem(self._bars[number])

    def draw(self, tasks: Sequence[TaskView], at_ns: int, following: bool) -> None:
        ends_s, table = count_outcomes(tasks, at_ns)
        base = np.zeros(len(ends_s))
        for number, bars in self._bars.items():
            bars.setOpts(x0=ends_s - 0.95, y0=base, height=table[:, number])
            base = base + table[:, number]
        if following:
            self.plot.setYRange(0.0, 1.15 * max(1.0, base.max()), padding=0)


class _ClockRow:
    """Clocks that the coordinators report."""

    def __init__(self, widget: DeadlinesWidget) -> None:
        self.plot = widget.make_plot("clock (MHz)")
        text = widget.palette().color(QPalette.ColorRole.Text)
        self._legend = self.plot.addLegend(offset=(5, 5), labelTextColor=text)
        self._curves: dict[str, pyqtgraph.PlotDataItem] = {}

    def draw(self, curves: dict[str, Any], following: bool) -> None:
        for name in set(self._curves) - set(curves):
            self.plot.removeItem(self._curves.pop(name))
        for name, (times_s, values) in curves.items():
            if name not in self._curves:
                pen = pyqtgraph.mkPen(CURVES[len(self._curves) % len(CURVES)], width=2)
                self._curves[name] = self.plot.plot(pen=pen, name=html.escape(name))
            self._curves[name].setData(times_s, values)
        if following and curves:
            top = max(float(values.max()) for _, values in curves.values())
            self.plot.setYRange(0.0, 1.15 * (top or 1.0), padding=0)


def _describe_looks() -> str:
    parts = [
        f'<span style="color:{color}">{SIGNS[symbol]}</span> {outcome}'
        for outcome, (color, symbol, _) in LOOKS.items()
    ]
    return " &nbsp; ".join([*parts, "— deadline", "▬ variant"])


def _describe_task(task: TaskView) -> str:
    """A task's figures of the last minute, as HTML."""
    text = f"<b>{html.escape(task.name)}</b>"
    if not task.present:
        text += " gone"
    if not math.isnan(task.rate_hz):
        text += f" &nbsp; {task.rate_hz:.1f} Hz"
    if not math.isnan(task.miss_ratio):
        text += f" &nbsp; {100 * task.miss_ratio:.1f} % missed"
    if not math.isnan(task.p50_ms):
        text += f" &nbsp; p50 {task.p50_ms:.1f} ms"
    if not math.isnan(task.p99_ms):
        text += f", p99 {task.p99_ms:.1f} ms"
    return text


def _describe(view: GraphView) -> str:
    """What the plots do not say."""
    parts = [
        f"{one.name}: {one.message}" + (f", {one.clocks}" if one.clocks else "")
        for one in view.coordinators
    ]
    if not view.tasks:
        parts.append("waiting for tasks: nothing publishes .../debug/timing")
    if view.dropped:
        dropped = ", ".join(f"{count} {reason}" for reason, count in view.dropped.items())
        parts.append(f"messages that were not used: {dropped}")
    return "; ".join(parts)
