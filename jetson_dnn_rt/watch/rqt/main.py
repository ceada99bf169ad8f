# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Starts rqt with one plugin of this package: ``ros2 run jetson_dnn_rt deadlines``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ament_index_python.packages import get_package_share_directory

PACKAGES = {
    "rqt_gui": "ros-<distro>-rqt-gui",
    "rqt_gui_py": "ros-<distro>-rqt-gui-py",
    "rqt_plot": "ros-<distro>-rqt-plot",
    "pyqtgraph": "python3-pyqtgraph",
}
"""What a plugin needs that a robot without a screen does not, and the package that has it."""


def deadlines() -> int:
    """Run the plugin *Deadlines* alone."""
    _check("rqt_gui", "rqt_gui_py", "pyqtgraph")
    return _run("jetson_dnn_rt.watch.rqt.deadlines.Deadlines", add_deadlines_arguments)


def plot() -> int:
    """Run rqt_plot alone, waiting for the topics of its arguments."""
    _check("rqt_gui", "rqt_gui_py", "rqt_plot")
    from rqt_plot.plot import Plot

    return _run("jetson_dnn_rt.watch.rqt.plot.WaitingPlot", Plot.add_arguments)


def add_deadlines_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of *Deadlines*, which come behind ``--args`` in rqt itself."""
    parser.add_argument("--namespace", default="/", help="show only the tasks below it")


def _check(*needed: str) -> None:
    missing = " ".join(PACKAGES[name] for name in needed if find_spec(name) is None)
    if missing:
        config = Path(get_package_share_directory("jetson_dnn_rt")) / "config"
        sys.exit(
            f"missing: {missing}; fix: sudo apt install {missing}. Without rqt, PlotJuggler and "
            f"Foxglove show the same topics: {config / 'plotjuggler_layout.xml'}, "
            f"{config / 'foxglove_layout.json'}"
        )


def _run(plugin: str, add_arguments: Callable[[ArgumentParser], None]) -> int:
    from rqt_gui.main import Main

    # rqt believes for a day that the plugins are those that it found last.
    arguments = [sys.argv[0], "--force-discover", *sys.argv[1:]]
    main = Main(filename=plugin)
    return int(
        main.main(arguments, standalone=plugin, plugin_argument_provider=add_arguments) or 0
    )
