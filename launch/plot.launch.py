# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Plots of nodes that run already, in rqt: the plugin Deadlines, or single topics in rqt_plot."""

import sys

from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from jetson_dnn_rt.nodes.process.launch_tools import check_arguments
from launch import LaunchDescription

ARGUMENTS = (
    ("namespace", "", "namespace of the nodes"),
    (
        "plot_with",
        "deadlines",
        "deadlines (finds the tasks itself), rqt_plot, or both with a comma",
    ),
    ("plot_tasks", "detector,segmenter", "tasks for rqt_plot, with commas between"),
    (
        "plot_topics",
        "pipeline_latency_ms,deadline_ms",
        "what of each in one window of rqt_plot: names below ~/debug, or whole topics of numbers",
    ),
    ("plot_counters", "deadline_misses", "the same for a window of its own; none = no window"),
)


def split(text):
    return [part.strip() for part in text.split(",") if part.strip() not in ("", "none")]


def find_fields(namespace, tasks, names):
    """Fields for rqt_plot: of topics below ~/debug of each task, or of whole topics."""
    prefix = "/" + namespace.strip("/") + "/" if namespace.strip("/") else "/"
    own = [name for name in names if not name.startswith("/")]
    fields = [f"{prefix}{task}/debug/{name}/data" for task in tasks for name in own]
    return fields + [f"{name}/data" for name in names if name.startswith("/")]


def make_window(executable, arguments):
    # Without rqt it says what to install, and ends; the launch goes on.
    return Node(
        package="jetson_dnn_rt", executable=executable, arguments=arguments, output="screen"
    )


def start(context):
    known = [name for name, _, _ in ARGUMENTS]
    notes = check_arguments("plot.launch.py", known, context.launch_configurations, sys.argv)
    value = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    namespace, tasks = value["namespace"], split(value["plot_tasks"])
    # Milliseconds and counts on one axis would hide each other.
    windows = {
        "deadlines": [("deadlines", ["--namespace", f"/{namespace.strip('/')}"])],
        "rqt_plot": [
            ("plot", fields)
            for name in ("plot_topics", "plot_counters")
            if (fields := find_fields(namespace, tasks, split(value[name])))
        ],
    }
    chosen = split(value["plot_with"])
    if unknown := set(chosen) - set(windows):
        raise ValueError(f"plot_with: {', '.join(windows)} expected, not {', '.join(unknown)}")
    shown = [make_window(*window) for name in chosen for window in windows[name]]
    return [*(LogInfo(msg=note) for note in notes), *shown]


def generate_launch_description():
    declared = [DeclareLaunchArgument(n, default_value=d, description=t) for n, d, t in ARGUMENTS]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])
