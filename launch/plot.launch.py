"""Plots latency, deadline and misses of every task in rqt_plot, for nodes that run already."""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import DeclareLaunchArgument, ExecuteProcess, LogInfo, OpaqueFunction
from launch.substitutions import LaunchConfiguration

from jetson_dnn_rt.nodes.process.launch_tools import has_package
from launch import LaunchDescription

CONFIG = Path(get_package_share_directory("jetson_dnn_rt")) / "config"

ARGUMENTS = (
    ("namespace", "", "namespace of the nodes"),
    ("plot_tasks", "detector,segmenter", "tasks, with commas between"),
    (
        "plot_topics",
        "pipeline_latency_ms,deadline_ms",
        "what is plotted of each in one window: names below ~/debug, or whole topics of numbers",
    ),
    ("plot_counters", "deadline_misses", "the same for a window of its own; none = no window"),
)
MISSING = (
    "plot: rqt_plot is not installed (ros-<distro>-rqt-plot). Layouts of the same topics are "
    f"{CONFIG / 'plotjuggler_layout.xml'} and {CONFIG / 'foxglove_layout.json'}"
)


def split(text):
    return [part.strip() for part in text.split(",") if part.strip() not in ("", "none")]


def find_fields(namespace, tasks, names):
    """Fields for rqt_plot: of topics below ~/debug of each task, or of whole topics."""
    prefix = "/" + namespace.strip("/") + "/" if namespace.strip("/") else "/"
    own = [name for name in names if not name.startswith("/")]
    fields = [f"{prefix}{task}/debug/{name}/data" for task in tasks for name in own]
    return fields + [f"{name}/data" for name in names if name.startswith("/")]


def start(context):
    value = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    tasks = split(value["plot_tasks"])
    windows = [
        find_fields(value["namespace"], tasks, split(value[name]))
        for name in ("plot_topics", "plot_counters")
    ]
    if not has_package("rqt_plot"):
        return [LogInfo(msg=MISSING)]
    # Milliseconds and counts on one axis would hide each other.
    return [
        ExecuteProcess(cmd=["ros2", "run", "rqt_plot", "rqt_plot", *fields], output="screen")
        for fields in windows
        if fields
    ]


def generate_launch_description():
    declared = [DeclareLaunchArgument(n, default_value=d, description=t) for n, d, t in ARGUMENTS]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])
