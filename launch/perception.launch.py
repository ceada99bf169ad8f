"""Cameras and tasks, composed into one process (the default) or one process each."""

import os
import tempfile
from pathlib import Path

import yaml
from ament_index_python.packages import get_package_share_directory
from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueFunction,
    SetEnvironmentVariable,
)
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.substitutions import ExecutableInPackage

from jetson_dnn_rt.nodes.process.launch_tools import has_package, is_true, make_overrides
from launch import LaunchDescription

PACKAGE = "jetson_dnn_rt"
SHARE = Path(get_package_share_directory(PACKAGE))

# name, default, description; an empty default leaves it to the parameter file.
ARGUMENTS = (
    ("namespace", "", "namespace of all nodes"),
    ("params_file", str(SHARE / "config" / "perception.param.yaml"), "parameter file"),
    ("input_image_topic", "", "images come from this topic; no camera is started then"),
    ("image_transport", "", "of that topic: raw or compressed"),
    ("source", "", "source of the camera: synthetic, video:PATH, device:/dev/video0, ..."),
    ("model", "", "model of the detector: builtin:detector, onnx:PATH, ..."),
    ("segmenter_model", "", "model of the segmenter; none = no segmenter"),
    ("engine_cache", "", "folder of what was built; none = nothing is kept"),
    ("build_only", "false", "build what the parameters name into that folder, and exit"),
    (
        "policy",
        "",
        "policy that decides on variants and clocks: static, neuos_balanced, horizon, ...",
    ),
    ("use_sim_time", "false", "take the time from /clock (bags, simulation)"),
    ("autostart", "true", "configure and activate at once"),
    ("composed", "true", "all nodes in one process; false = one process each"),
    ("plot", "false", "show latency, deadline and misses in rqt_plot (plot.launch.py)"),
    ("record", "false", "trace every job: for `jetson-dnn-rt report`, `wcet` and `export`"),
    ("trace_dir", "", "folder of the traces; empty = ~/.ros/jetson_dnn_rt with record:=true"),
    ("record_bag", "", "record results and timing into a bag of this name"),
    ("log_level", "info", "debug, info, warn, error or fatal"),
)
TIMING = (
    *("processing_time_ms", "pipeline_latency_ms", "lateness_ms", "deadline_ms"),
    *("wcet_ms", "pwcet_ms", "p50_ms", "p99_ms", "p999_ms", "hwm_ms", "drift"),
    *("deadline_misses", "deadline_miss_ratio"),
)
RESULTS = ("detections", "class_mask", "label_info", "camera_info")


def set_profile():
    """Point Fast DDS to the profile that loses no images, unless the user has set one."""
    # One name only: with both, a later Fast DDS reads the profile twice and warns.
    fast_dds_2 = os.environ.get("ROS_DISTRO") in ("humble", "iron", "jazzy")
    names = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
    if any(name in os.environ for name in names):
        return []
    profile = str(SHARE / "config" / "fastdds_profile.xml")
    return [SetEnvironmentVariable(names[0] if fast_dds_2 else names[1], profile)]


def write_overrides(arguments, tasks, with_camera):
    """Write the parameters that the launch arguments set into a file of their own."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="jetson_dnn_rt_", suffix=".yaml", delete=False
    ) as f:
        yaml.safe_dump(make_overrides(arguments, tasks, with_camera), f)
    return f.name


def make_node(arguments, executable, overrides, remappings):
    # No `name`: ros2 launch would rename every node of the composed process to it.
    return Node(
        package=PACKAGE,
        executable=executable,
        namespace=arguments["namespace"] or None,
        parameters=[arguments["params_file"], overrides],
        remappings=remappings,
        ros_arguments=["--log-level", arguments["log_level"]],
        output="screen",
        emulate_tty=True,
        sigterm_timeout="2",
        sigkill_timeout="2",
    )


def start_tools(arguments, tasks):
    """Plot and record, where the tools are installed."""
    space = "/" + arguments["namespace"].strip("/")
    prefix = space.rstrip("/") + "/"
    actions = []
    if is_true(arguments["plot"]):
        source = PythonLaunchDescriptionSource(str(SHARE / "launch" / "plot.launch.py"))
        given = {"namespace": arguments["namespace"], "plot_tasks": ",".join(tasks)}
        actions.append(IncludeLaunchDescription(source, launch_arguments=given.items()))
    if arguments["record_bag"]:
        topics = [prefix + name for name in RESULTS]
        topics += [f"{prefix}{task}/debug/{name}" for task in tasks for name in TIMING]
        topics += ["/diagnostics", "/statistics"]
        if has_package("ros2bag"):
            command = ["ros2", "bag", "record", "-o", arguments["record_bag"], *topics]
            actions.append(ExecuteProcess(cmd=command, output="screen"))
        else:
            text = "record_bag: ros2bag is not installed (ros-<distro>-ros2bag)"
            actions.append(LogInfo(msg=text))
    return actions


def end_with(event, context):
    """Make the launch fail with the build."""
    if event.returncode:
        # The launch itself then exits with 1, its only code for a failure.
        raise RuntimeError(f"the build ended with exit code {event.returncode}")


def make_build(arguments, overrides):
    """Build what the nodes would run, and run nothing."""
    command = [ExecutableInPackage(executable="build", package=PACKAGE)]
    for file in (arguments["params_file"], overrides):
        command += ["--params", file]
    if arguments["namespace"]:
        command += ["--namespace", arguments["namespace"]]
    return ExecuteProcess(cmd=command, output="screen", on_exit=end_with)


def start(context):
    arguments = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    topic = arguments["input_image_topic"]
    with_camera = not topic
    tasks = ["detector"] if arguments["segmenter_model"] == "none" else ["detector", "segmenter"]
    overrides = write_overrides(arguments, tasks, with_camera)
    if is_true(arguments["build_only"]):
        return [make_build(arguments, overrides)]
    remappings = [("image_raw", topic)] if topic else []
    if is_true(arguments["composed"]):
        nodes = [make_node(arguments, "perception", overrides, remappings)]
    else:
        # In one process these belong to the first task of a namespace.
        own = [("label_info", "segmenter/label_info"), ("debug_image", "segmenter/debug_image")]
        # It needs tables in the parameter file, so it only starts when a policy is given.
        coordinator = ["coordinator"] if arguments["policy"] else []
        nodes = [
            make_node(
                arguments, name, overrides, remappings + (own if name == "segmenter" else [])
            )
            for name in (["camera"] if with_camera else []) + tasks + coordinator
        ]
    return nodes + start_tools(arguments, tasks)


def generate_launch_description():
    declared = [DeclareLaunchArgument(n, default_value=d, description=t) for n, d, t in ARGUMENTS]
    return LaunchDescription([*declared, *set_profile(), OpaqueFunction(function=start)])
