# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""rqt_plot for topics that are not there yet, with a window of a minute."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from python_qt_binding.QtCore import QTimer
from rqt_plot.plot import Plot
from rqt_plot.plot_widget import is_plottable
from std_msgs.msg import Float64

WINDOW_S = 60.0
LOOK_PERIOD_MS = 250


class WaitingPlot(Plot):
    """rqt_plot, which itself drops each topic that is not discovered in the instant it starts."""

    def __init__(self, context: Any) -> None:
        self._waiting: list[str] = []
        super().__init__(context)
        # The tasks' topics of numbers are made when somebody subscribes.
        self._asking = [
            self._node.create_subscription(Float64, topic.rpartition("/")[0], _ignore, 1)
            for topic in self._waiting
            if "/debug/" in topic
        ]
        self._timer = QTimer(self)
        self._timer.timeout.connect(self.look)
        self._timer.start(LOOK_PERIOD_MS)

    def look(self) -> None:
        """Add the topics that have appeared."""
        found = [topic for topic in self._waiting if is_plottable(self._node, topic)[0]]
        # Scrolling makes the window a second wide while there is nothing to plot.
        self._data_plot.autoscroll(False)
        for topic in found:
            self._waiting.remove(topic)
            self._widget.add_topic(topic)
        self._data_plot.autoscroll(self._widget.autoscroll_checkbox.isChecked())
        if not self._waiting:
            self._stop_looking()

    def restore_settings(self, plugin_settings: Any, instance_settings: Any) -> None:
        """Restore what was saved, but for the window."""
        super().restore_settings(plugin_settings, instance_settings)
        self._data_plot.set_xlim([0.0, WINDOW_S])

    def shutdown_plugin(self) -> None:
        """Look for no more topics."""
        self._stop_looking()
        super().shutdown_plugin()

    def _stop_looking(self) -> None:
        self._timer.stop()
        while self._asking:
            self._node.destroy_subscription(self._asking.pop())

    def _parse_args(self, argv: list[str]) -> Namespace:
        """Keep topics from the base class, and those of the last session from mixing with them."""
        given = super()._parse_args(argv)
        self._waiting, given.topics = given.topics, []
        given.start_empty = given.start_empty or bool(self._waiting)
        return given


def _ignore(_: Float64) -> None:
    pass
