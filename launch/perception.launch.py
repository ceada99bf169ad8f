# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cameras and tasks, composed into one process (the default) or one process each.

Which there are is in the parameter file; arguments override it where they are given.
"""

import os
import posixpath
import sys
from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    GroupAction,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueFunction,
)
from launch.conditions import IfCondition, UnlessCondition
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.substitutions import ExecutableInPackage

from jetson_dnn_rt.cli.environment import choose_profile, find_picture_bytes
from jetson_dnn_rt.nodes.process.launch_tools import (
    check_arguments,
    has_package,
    read_graph,
    read_switches,
)
from jetson_dnn_rt.safety.starter import name_starter
from launch import LaunchDescription

PACKAGE = "jetson_dnn_rt"
SHARE = Path(get_package_share_directory(PACKAGE))
CONFIG = SHARE / "config"

# name, default, description; an empty default leaves it to the parameter file.
ARGUMENTS = (
    (
        "params_file",
        str(CONFIG / "perception.param.yaml"),
        "parameter file; a name that is not there is looked up among those of the package",
    ),
    ("namespace", "", "namespace of all nodes"),
    (
        "cameras",
        "",
        "cameras to start: front,rear (short for front/camera,rear/camera); tasks without a "
        "namespace then run on each of them; none = they run elsewhere",
    ),
    ("tasks", "", "tasks to start: detector, or front/detector,rear/segmenter, ..."),
    ("input_image_topic", "", "images of all tasks come from this topic; no camera is started"),
    ("image_transport", "", "of the images' topics: raw or compressed"),
    ("source", "", "source of every camera: synthetic, video:PATH, device:/dev/video0, ..."),
    ("model", "", "model of the detection tasks: builtin:detector, onnx:PATH, ..."),
    ("segmenter_model", "", "model of the segmentation tasks: builtin:segmenter, onnx:PATH, ..."),
    (
        "classifier_model",
        "",
        "model of the classification tasks: torchvision:NAME, onnx:PATH, ...",
    ),
    ("engine_cache", "", "folder of what was built; none = nothing is kept"),
    (
        "policy",
        "",
        "policy that decides on variants and clocks: static, neuos_balanced, horizon, ...",
    ),
    ("use_sim_time", "", "take the time from /clock (bags, simulation): true or false"),
    ("autostart", "true", "configure and activate at once"),
    ("composed", "true", "all nodes in one process; false = one process each"),
    ("respawn", "false", "start a process again, after two seconds, when it has ended"),
    ("build_only", "false", "build what the parameters name into engine_cache, and exit"),
    ("plot", "false", "show deadlines, misses and variants in rqt; see plot.launch.py"),
    ("record", "false", "trace every job: for `jetson-dnn-rt report`, `wcet` and `export`"),
    ("trace_dir", "", "folder of the traces; empty = ~/.ros/jetson_dnn_rt with record:=true"),
    ("record_bag", "", "record results and timing into a bag of this name"),
    ("log_level", "info", "debug, info, warn, error or fatal"),
)
# Only topics that exist by themselves: a recorder subscribes to what it sees. `timing` has all.
OF_TASK = (
    *("label_info", "debug/timing", "debug/processing_time_ms", "debug/pipeline_latency_ms"),
    *("debug/lateness_ms", "debug/deadline_ms", "debug/deadline_misses"),
)
BESIDE_IMAGES = ("label_info", "camera_info")
RESPAWN_DELAY_S = 2.0


def make_environment(graph):
    """What these processes get, and no others: an including launch file keeps its environment."""
    picture_bytes = find_picture_bytes(graph.picture_sizes)
    return {**choose_profile(os.environ, picture_bytes), **name_starter()}


def make_node(graph, overrides, process, environment):
    space, name = posixpath.split(process.node)
    # Of the composed process none: ros2 launch would rename every node in it.
    named = {"name": name, "exec_name": process.node.replace("/", "_")} if name else {}
    return Node(
        package=PACKAGE,
        executable=process.executable,
        namespace=posixpath.normpath(posixpath.join(graph.file.namespace, space)),
        parameters=[str(graph.file.path), overrides],
        remappings=process.remappings,
        ros_arguments=["--log-level", LaunchConfiguration("log_level"), *find_enclave(process)],
        respawn=LaunchConfiguration("respawn"),
        respawn_delay=RESPAWN_DELAY_S,
        additional_env=environment,
        output="screen",
        emulate_tty=True,
        sigterm_timeout="2",
        sigkill_timeout="2",
        **named,
    )


def find_enclave(process):
    """Rights of a process, with the names of config/security, where SROS2 is on."""
    secured = os.environ.get("ROS_SECURITY_ENABLE") == "true"
    return ["--enclave", f"/{process.node or process.executable}"] if secured else []


def make_plot(graph):
    return IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(SHARE / "launch" / "plot.launch.py")),
        launch_arguments={
            "namespace": graph.file.namespace,
            "plot_tasks": ",".join(graph.tasks),
        }.items(),
        condition=IfCondition(LaunchConfiguration("plot")),
    )


def make_recorder(graph, bag, environment):
    """Record results and timing, where ros2 bag is installed."""
    if not has_package("ros2bag"):
        return LogInfo(msg="record_bag: ros2bag is not installed (ros-<distro>-ros2bag)")
    prefix = graph.file.namespace
    spaces = dict.fromkeys(posixpath.dirname(name) for name in (*graph.tasks, *graph.cameras))
    found = (*graph.outputs.values(), *graph.companions.values())
    topics = [topic for topics in found for topic in topics]
    topics += ["/diagnostics", "/statistics"]
    topics += [posixpath.join(prefix, s, name) for s in spaces for name in BESIDE_IMAGES]
    topics += [posixpath.join(prefix, task, name) for task in graph.tasks for name in OF_TASK]
    command = ["ros2", "bag", "record", "-o", bag, *topics]
    return ExecuteProcess(cmd=command, output="screen", additional_env=environment)


def end_with(event, context):
    """Make the launch fail with the build."""
    if event.returncode:
        # The launch itself then exits with 1, its only code for a failure.
        raise RuntimeError(f"the build ended with exit code {event.returncode}")


def make_build(graph, overrides):
    """Build what the nodes would run, and run nothing."""
    return ExecuteProcess(
        cmd=[
            ExecutableInPackage(executable="build", package=PACKAGE),
            *("--params", str(graph.file.path), "--params", overrides),
            *("--namespace", graph.file.namespace),
        ],
        output="screen",
        on_exit=end_with,
        condition=IfCondition(LaunchConfiguration("build_only")),
    )


def start(context):
    known = [name for name, _, _ in ARGUMENTS]
    given = context.launch_configurations
    notes = check_arguments("perception.launch.py", known, given, sys.argv)
    values = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    switches = read_switches(values)
    values |= switches
    context.launch_configurations.update(switches)  # conditions take fewer words
    graph = read_graph(values, CONFIG, context.launch_configurations.get("ros_namespace", ""))
    overrides = graph.write_overrides()
    environment = make_environment(graph)
    running = [make_node(graph, overrides, one, environment) for one in graph.processes]
    running.append(make_plot(graph))
    if values["record_bag"]:
        running.append(make_recorder(graph, values["record_bag"], environment))
    return [
        *(LogInfo(msg=note) for note in notes),
        # The composed process says it itself.
        *(LogInfo(msg=note) for note in graph.notes if values["composed"] == "false"),
        make_build(graph, overrides),
        GroupAction(running, condition=UnlessCondition(LaunchConfiguration("build_only"))),
    ]


def generate_launch_description():
    declared = [DeclareLaunchArgument(n, default_value=d, description=t) for n, d, t in ARGUMENTS]
    # What there is to start is in the parameter file, which no substitution can read.
    return LaunchDescription([*declared, OpaqueFunction(function=start)])
