# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The wrapper of rqt_plot, with a fake of rqt_plot and of Qt's timer in the place of both."""

from __future__ import annotations

import argparse
import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("std_msgs", reason="std_msgs is not installed: topics have no type")

LATENCY, DEADLINE = "/detector/debug/p99_ms/data", "/detector/debug/deadline_ms/data"
OTHER = "/robot/speed/data"


class FakeTimer:
    def __init__(self, _parent):
        self.timeout, self.running = SimpleNamespace(connect=lambda _: None), False

    def start(self, _period_ms):
        self.running = True

    def stop(self):
        self.running = False


class FakeDataPlot:
    def __init__(self):
        self.scrolls, self.limits = True, [0.0, 10.0]

    def autoscroll(self, wanted):
        self.scrolls = wanted

    def set_xlim(self, limits):
        self.limits = limits


class FakeWidget:
    """As rqt_plot's: a topic that is not discovered is dropped."""

    def __init__(self, node, data_plot):
        self.node, self.data_plot, self.plotted = node, data_plot, []
        self.autoscroll_checkbox = SimpleNamespace(isChecked=lambda: True)

    def add_topic(self, field):
        if is_plottable(self.node, field)[0]:
            self.plotted.append(field)
        if self.data_plot.scrolls:
            self.data_plot.limits = [0.0, 1.0]


class FakePlot:
    def __init__(self, context):
        self._node = context.node
        self._args = self._parse_args(context.arguments)
        self._data_plot = FakeDataPlot()
        self._widget = FakeWidget(self._node, self._data_plot)
        self.closed = False
        for topic in self._args.topics:
            self._widget.add_topic(topic)

    def _parse_args(self, arguments):
        return argparse.Namespace(topics=list(arguments), start_empty=False)

    def restore_settings(self, _plugin_settings, _instance_settings):
        if not self._args.start_empty:
            self._widget.plotted.append("of the last session")
        self._data_plot.set_xlim([0.0, 1.0])

    def shutdown_plugin(self):
        self.closed = True


class FakeNode:
    """A graph in which a subscription makes its own topic known."""

    def __init__(self):
        self.topics = set()
        self.subscriptions = []

    def create_subscription(self, _kind, topic, _take, _depth):
        self.subscriptions.append(topic)
        self.topics.add(topic)
        return topic

    def destroy_subscription(self, topic):
        self.subscriptions.remove(topic)


def is_plottable(node, field):
    found = field.rpartition("/")[0] in node.topics
    return found, "" if found else "does not exist"


@pytest.fixture
def start(monkeypatch):
    modules = {
        "python_qt_binding": {},
        "python_qt_binding.QtCore": {"QTimer": FakeTimer},
        "rqt_plot": {},
        "rqt_plot.plot": {"Plot": FakePlot},
        "rqt_plot.plot_widget": {"is_plottable": is_plottable},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    name = "jetson_dnn_rt.watch.rqt.plot"
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)

    def start(*topics):
        plugin = module.WaitingPlot(SimpleNamespace(node=FakeNode(), arguments=topics))
        plugin.restore_settings(None, None)
        return plugin

    yield start
    sys.modules.pop(name, None)


def test_a_topic_is_plotted_when_it_appears(start):
    plugin = start(OTHER)
    plugin.look()
    assert plugin._widget.plotted == []
    assert plugin._timer.running
    plugin._node.topics.add("/robot/speed")
    plugin.look()
    plugin.look()
    assert plugin._widget.plotted == [OTHER]
    assert not plugin._timer.running


def test_topics_that_are_made_on_subscription_are_asked_for(start):
    plugin = start(LATENCY, OTHER, DEADLINE)
    assert plugin._node.subscriptions == ["/detector/debug/p99_ms", "/detector/debug/deadline_ms"]
    plugin.look()
    assert plugin._widget.plotted == [LATENCY, DEADLINE]
    assert len(plugin._node.subscriptions) == 2
    plugin._node.topics.add("/robot/speed")
    plugin.look()
    assert plugin._node.subscriptions == []


def test_the_window_is_a_minute_and_stays_one(start):
    plugin = start(LATENCY)
    assert plugin._data_plot.limits == [0.0, 60.0]
    plugin.look()
    assert plugin._data_plot.limits == [0.0, 60.0]
    assert plugin._data_plot.scrolls


def test_topics_of_the_last_session_are_for_a_start_without_any(start):
    assert start(OTHER)._widget.plotted == []
    assert start()._widget.plotted == ["of the last session"]


def test_closing_ends_the_search(start):
    plugin = start(LATENCY, OTHER)
    plugin.shutdown_plugin()
    assert (plugin.closed, plugin._timer.running) == (True, False)
    assert plugin._node.subscriptions == []
