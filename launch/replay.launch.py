# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Runs the nodes on a recorded bag, under its clock; it is played once every task takes frames.

All arguments of perception.launch.py apply here too. To lose no frame, and for statistics, use
`jetson-dnn-rt evaluate`, which reads the bag itself.
"""

import os
from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueFunction,
    Shutdown,
    TimerAction,
)
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.ros_adapters import get_ros_node

from jetson_dnn_rt.cameras.bags.folder import METADATA, lay_out
from jetson_dnn_rt.cameras.bags.image_bag import open_image_bag
from jetson_dnn_rt.cli.environment import choose_profile
from jetson_dnn_rt.nodes.process.launch_tools import has_package, is_true, read_graph
from launch import LaunchDescription

SHARE = Path(get_package_share_directory("jetson_dnn_rt"))
PERCEPTION = str(SHARE / "launch" / "perception.launch.py")

ARGUMENTS = (
    ("bag", "", "folder of the bag, or its file (.mcap, .db3); must be given"),
    ("topic", "", "its images; empty = the only topic with images"),
    ("rate", "1.0", "times real time"),
    ("clock_rate", "100", "messages on /clock a second"),
    ("loop", "false", "start again at the end"),
    ("end_with_bag", "true", "end the nodes when the bag ends"),
)
COMPRESSED = "sensor_msgs/msg/CompressedImage"
SUFFIX = "/compressed"

POLL_S = 0.2
SAY_EVERY = 50
"""Polls between two progress lines: ten seconds."""

DRAIN_S = 2.0
"""Time from the end of the bag to that of the nodes, for the last jobs."""


def find_playable(bag):
    """What `ros2 bag play` opens: a folder only by its metadata.yaml, otherwise one file."""
    if bag.name == METADATA:
        return bag.parent
    if bag.is_file() or (bag / METADATA).is_file():
        return bag
    files = lay_out(bag).files
    if len(files) > 1:
        raise ValueError(
            f"bag {bag} has {len(files)} files and no {METADATA}; fix: ros2 bag reindex {bag}"
        )
    return files[0]


def play(arguments, bag, topic):
    command = ["ros2", "bag", "play", str(bag), "--clock", arguments["clock_rate"]]
    command += ["--rate", arguments["rate"], "--topics", topic]
    if bag.suffix == ".mcap":
        # Humble takes any file for sqlite3 otherwise.
        command += ["--storage", "mcap"]
    if is_true(arguments["loop"]):
        command.append("--loop")

    def end(event, context):
        if event.returncode:
            # The launch itself then exits with 1, its only code for a failure.
            raise RuntimeError(f"ros2 bag play ended with exit code {event.returncode}")
        actions = [LogInfo(msg="the bag has ended")]
        if is_true(arguments["end_with_bag"]):
            actions.append(TimerAction(period=DRAIN_S, actions=[Shutdown()]))
        return actions

    # Without the profile a large part of the images is lost.
    environment = choose_profile(os.environ)
    return ExecuteProcess(cmd=command, output="screen", on_exit=end, additional_env=environment)


def wait_for_tasks(player, topic, wanted, looks=0):
    """Poll until the tasks subscribe, then play."""

    def look(context):
        # Nodes subscribe when they become active, with models loaded and warmed up.
        if get_ros_node(context).count_subscribers(topic) >= wanted:
            return [LogInfo(msg=f"playing {topic}"), player]
        again = wait_for_tasks(player, topic, wanted, looks + 1)
        if looks % SAY_EVERY == 0:
            return [LogInfo(msg=f"waiting for the tasks to subscribe to {topic}"), again]
        return [again]

    return TimerAction(period=POLL_S, actions=[OpaqueFunction(function=look)])


def start(context):
    arguments = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    if not arguments["bag"]:
        raise ValueError("no bag to play; fix: bag:=FOLDER or bag:=FILE")
    path = Path(arguments["bag"]).expanduser()
    topic = arguments["topic"]
    topic = topic if topic.startswith("/") or not topic else f"/{topic}"
    with open_image_bag(path, topic, messages=False) as bag:
        topic, compressed = bag.topic, bag.kind == COMPRESSED
        notes = [LogInfo(msg=f"{path}: {note}") for note in bag.notes]
    if not has_package("ros2bag"):
        raise RuntimeError(
            "ros2 bag is not installed (ros-<distro>-ros2bag and -rosbag2-storage-mcap)"
        )
    # The nodes add the transport's suffix to the name themselves.
    base = topic.removesuffix(SUFFIX) if compressed else topic
    if compressed and base == topic:
        raise ValueError(f"compressed images must be on a topic that ends in {SUFFIX}: {topic}")
    include = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(PERCEPTION),
        launch_arguments={
            "use_sim_time": "true",
            "input_image_topic": base,
            "image_transport": "compressed" if compressed else "raw",
        }.items(),
    )
    player = play(arguments, find_playable(path), topic)

    def wait(context):
        # The arguments of perception.launch.py are declared now.
        values = context.launch_configurations
        tasks = read_graph(values, SHARE / "config", values.get("ros_namespace", "")).tasks
        # Composed tasks share one subscription.
        return [wait_for_tasks(player, topic, 1 if is_true(values["composed"]) else len(tasks))]

    return [*notes, include, OpaqueFunction(function=wait)]


def generate_launch_description():
    declared = [DeclareLaunchArgument(n, default_value=d, description=t) for n, d, t in ARGUMENTS]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])
