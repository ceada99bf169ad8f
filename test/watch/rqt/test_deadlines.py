# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The window of the plugin Deadlines, drawn for real by Qt without a screen."""

from __future__ import annotations

import csv
import importlib
import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from jetson_dnn_rt.watch.graph import Graph

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

pytest.importorskip("rclpy", reason="rclpy is not installed: nothing to subscribe with")
WHY = "PyQt5 is not installed: no window"
QtCore = pytest.importorskip("PyQt5.QtCore", reason=WHY)
QtGui = pytest.importorskip("PyQt5.QtGui", reason=WHY)
QtWidgets = pytest.importorskip("PyQt5.QtWidgets", reason=WHY)
pytest.importorskip("pyqtgraph", reason="pyqtgraph is not installed: no plots")

POLICY = "/coordinator: policy_status"


class FakePlugin(QtCore.QObject):
    """rqt's base class, where rqt is not installed."""

    def __init__(self, context):
        super().__init__(context)


class Settings(dict):
    """As qt_gui's, which keeps texts."""

    def set_value(self, key, value):
        self[key] = str(value)

    def value(self, key, default=None):
        return self.get(key, default)


@pytest.fixture(scope="module")
def application():
    return QtWidgets.QApplication.instance() or QtWidgets.QApplication([])


@pytest.fixture
def module(application, monkeypatch):
    """The plugin's module; rqt and its Qt binding are faked where they are not installed."""
    try:
        importlib.import_module("rqt_gui_py.plugin")
    except ModuleNotFoundError:
        fakes = {
            "python_qt_binding": ModuleType("python_qt_binding"),
            "python_qt_binding.QtCore": QtCore,
            "python_qt_binding.QtGui": QtGui,
            "python_qt_binding.QtWidgets": QtWidgets,
            "rqt_gui_py": ModuleType("rqt_gui_py"),
            "rqt_gui_py.plugin": SimpleNamespace(Plugin=FakePlugin),
        }
        for name, fake in fakes.items():
            monkeypatch.setitem(sys.modules, name, fake)
    name = "jetson_dnn_rt.watch.rqt.deadlines"
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


class Window:
    """A widget that is drawn when the test says so, over a graph with a clock of the test."""

    def __init__(self, module, application):
        self.module, self.application = module, application
        self.now_ns = 100 * 10**9
        self.graph = Graph(lambda: self.now_ns)
        self.widget = module.DeadlinesWidget(self.graph)
        self.widget.show()
        self.widget.stop()

    def add(self, task, outcome="met", response="10", variant="full@a"):
        self.now_ns += 10**7
        values = {"outcome": outcome, "response_ms": response, "variant": variant}
        self.graph.add_frame(task, {**values, "deadline_ms": "33"})

    def tick(self):
        self.widget._tick()
        self.widget.stop()
        self.application.processEvents()

    @property
    def titles(self):
        plots = [row.plot for row in self.widget._rows.values()]
        return sorted(plot.titleLabel.text for plot in plots)

    @property
    def listed(self):
        tasks = self.widget._list
        return [tasks.item(n).text() for n in range(tasks.count())]

    def check(self, task, checked):
        state = QtCore.Qt.CheckState.Checked if checked else QtCore.Qt.CheckState.Unchecked
        self.widget._list.item(self.listed.index(task)).setCheckState(state)


@pytest.fixture
def window(module, application):
    window = Window(module, application)
    yield window
    window.widget.close()
    window.widget.deleteLater()
    application.sendPostedEvents(None, QtCore.QEvent.DeferredDelete)


def points(window, task, outcome):
    return window.widget._rows[task]._points[outcome].getData()[1].tolist()


def test_tasks_appear_with_their_frames_and_their_figures(window):
    window.tick()
    assert "waiting for tasks" in window.widget._status.text()
    assert window.listed == []
    window.add("/detector")
    window.add("/detector", "late", "41")
    window.add("/front/segmenter", "skipped", "0")
    window.tick()
    assert window.listed == ["/detector", "/front/segmenter"]
    assert points(window, "/detector", "met") == [10]
    assert points(window, "/detector", "late") == [41]
    detector, segmenter = window.titles
    assert "<b>/detector</b>" in detector
    assert "50.0 % missed" in detector
    assert "100.0 % missed" in segmenter
    assert "waiting" not in window.widget._status.text()


def test_a_task_that_ends_is_crossed_out_and_its_minute_stays(window):
    window.add("/detector")
    window.tick()
    window.graph.set_present(set())
    window.tick()
    assert window.widget._list.item(0).font().strikeOut()
    assert "gone" in window.titles[0]
    assert points(window, "/detector", "met") == [10]
    window.graph.set_present({"/detector"})
    window.tick()
    assert not window.widget._list.item(0).font().strikeOut()


def test_a_hidden_task_is_not_drawn_and_not_counted(window):
    window.add("/a", "late", "40")
    window.add("/b", "late", "40")
    window.tick()
    window.check("/a", checked=False)
    assert [title[3:5] for title in window.titles] == ["/b"]
    misses = window.widget._misses._bars
    assert sum(sum(bars.opts["height"]) for bars in misses.values()) == 1
    window.check("/a", checked=True)
    assert len(window.titles) == 2


def test_many_tasks_wait_in_the_list(window, module):
    names = [f"/t{n:02}" for n in range(module.SHOWN_AT_FIRST + 3)]
    for name in names:
        window.add(name)
    window.tick()
    window.tick()
    assert window.listed == names
    assert len(window.titles) == module.SHOWN_AT_FIRST
    window.check(names[-1], checked=True)
    assert len(window.titles) == module.SHOWN_AT_FIRST + 1


def test_a_pause_holds_the_picture(window):
    window.add("/detector")
    window.tick()
    window.widget._pause.click()
    window.add("/detector", response="20")
    window.tick()
    assert points(window, "/detector", "met") == [10]
    window.widget._pause.click()
    window.tick()
    assert points(window, "/detector", "met") == [10, 20]


def test_zooming_ends_following_until_it_is_asked_for_again(window):
    window.add("/detector")
    window.tick()
    plot = window.widget._rows["/detector"].plot
    plot.setXRange(-5, -1, padding=0)
    plot.vb.sigRangeChangedManually.emit([True, True])
    window.tick()
    assert plot.viewRange()[0] == pytest.approx([-5, -1], abs=0.5)
    assert window.widget._follow.isEnabled()
    window.widget._follow.click()
    assert plot.viewRange()[0] == pytest.approx([-60, 0], abs=2)
    assert not window.widget._follow.isEnabled()


def test_variants_have_a_band_and_names(window):
    for n in range(1200):
        window.add("/detector", variant="full@a" if n < 600 else "tucker@a")
    window.tick()
    row = window.widget._rows["/detector"]
    assert [label.toPlainText() for label in row._labels] == ["full@a", "tucker@a"]
    window.now_ns += 61 * 10**9
    window.tick()
    assert row._labels == []


def test_one_long_response_does_not_flatten_the_others(window):
    window.add("/detector")
    window.tick()
    assert "above" not in window.titles[0]
    window.add("/detector", "late", "4000")
    window.tick()
    assert "1 above" in window.titles[0]
    (_, top) = window.widget._rows["/detector"].plot.viewRange()[1]
    assert top == pytest.approx(5 * 33)
    assert points(window, "/detector", "late") == [4000]


def test_clocks_have_a_plot_while_a_coordinator_reports_them(window):
    window.add("/detector")
    window.tick()
    assert window.widget._clock_row.plot not in window.widget._order
    window.graph.add_status(POLICY, 0, "horizon decides", {"clocks": "gpu 1300 MHz"})
    window.tick()
    assert window.widget._order[-1] is window.widget._clock_row.plot
    assert "horizon decides, gpu 1300 MHz" in window.widget._status.text()
    window.now_ns += 61 * 10**9
    window.tick()
    assert window.widget._clock_row.plot not in window.widget._order


def test_a_name_is_text_and_not_markup(window):
    window.add("/<b>x</b>")
    window.tick()
    assert "&lt;b&gt;x" in window.titles[0]


def test_plots_and_frames_are_saved(window, tmp_path):
    window.add("/detector", "late", "41")
    window.add("/hidden")
    window.widget.hide_tasks(["/hidden"])
    window.tick()
    window.widget.save(tmp_path / "a.png")
    picture = QtGui.QImage(str(tmp_path / "a.png"))
    assert picture.width() > 300
    colors = {picture.pixel(x, y) for x in range(picture.width()) for y in range(picture.height())}
    assert QtGui.QColor(window.module.LOOKS["late"][0]).rgb() in colors
    window.widget.save(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as stream:
        assert [row["task"] for row in csv.DictReader(stream)] == ["/detector"]
    with pytest.raises(ValueError, match=r"must end in .png or .csv: a.bmp"):
        window.widget.save(tmp_path / "a.bmp")
    with pytest.raises(OSError, match="cannot write"):
        window.widget.save(tmp_path / "nowhere" / "a.png")


def test_work_for_a_redraw_is_bounded(window, module):
    for _ in range(20_000):
        window.add("/detector", "met" if window.now_ns % 20_000_000 else "late")
        window.now_ns -= 9 * 10**6
    window.tick()
    drawn = sum(len(points(window, "/detector", outcome)) for outcome in module.LOOKS)
    assert 2000 < drawn <= 4000


class Context(QtCore.QObject):
    """What rqt hands to a plugin."""

    def __init__(self, node, arguments=()):
        super().__init__()
        self.node, self.arguments, self.widgets = node, list(arguments), []

    def argv(self):
        return self.arguments

    def serial_number(self):
        return 2

    def add_widget(self, widget):
        self.widgets.append(widget)


def test_the_plugin_shows_a_task_of_the_graph_and_closes(module, ros):
    from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

    context = Context(ros.probe, ["--namespace", "/front"])
    plugin = module.Deadlines(context)
    (widget,) = context.widgets
    assert widget.windowTitle() == "Deadlines (2)"
    settings = Settings(hidden="/front/other\n/gone")
    plugin.restore_settings(None, settings)
    publishers = [
        ros.advertise(DiagnosticArray, f"{task}/debug/timing", 10)
        for task in ("/front/detector", "/front/other", "/rear/detector")
    ]
    values = {"outcome": "late", "response_ms": "40.5", "deadline_ms": "33", "variant": "full@a"}
    status = DiagnosticStatus(values=[KeyValue(key=k, value=v) for k, v in values.items()])

    def seen():
        for publisher in publishers:
            publisher.publish(DiagnosticArray(status=[status]))
        widget._tick()
        widget.redraw()
        return {task.name for task in widget._view.tasks if task.totals["late"]}

    ros.wait(lambda: seen() == {"/front/detector", "/front/other"}, "frames of both tasks")
    assert list(widget._rows) == ["/front/detector"]
    plugin.save_settings(None, settings)
    assert settings["hidden"] == "/front/other\n/gone"
    plugin.shutdown_plugin()
    assert not widget._timer.isActive()
    topic = "/front/detector/debug/timing"
    ros.wait(lambda: not ros.probe.count_subscribers(topic), "the end of the subscription")
