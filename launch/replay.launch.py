# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Runs the nodes on a recorded bag, under its clock, from its first frame on.

`ros2 bag play` does not wait for subscribers: it is started paused, and resumed once every task
subscribes and has discovered it.

All arguments of perception.launch.py apply here too. To lose no frame, and for statistics, use
`jetson-dnn-rt evaluate`, which reads the bag itself.
"""

import os
import sys
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
from jetson_dnn_rt.nodes.process.launch_tools import (
    check_arguments,
    has_package,
    is_true,
    read_graph,
)
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

SETTLED_POLLS = 5
"""Polls over which the subscriptions must not have changed with the player there: with
`input_qos: auto` the tasks may replace theirs when they discover what it offers."""

PLAYER = "rosbag2_player"
RESUME = (f"/{PLAYER}/resume", "rosbag2_interfaces/srv/Resume")

ACK_LIMIT_MS = "5000"
"""Longest time for which the player waits at its end until messages are acknowledged."""

DRAIN_S = 2.0
"""Time from the end of the bag to that of the nodes, for the last jobs."""


ENVIRONMENT = choose_profile(os.environ)


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
    command += ["--rate", arguments["rate"], "--start-paused"]
    command += ["--wait-for-all-acked", ACK_LIMIT_MS, "--topics", topic]
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
    return ExecuteProcess(cmd=command, output="screen", on_exit=end, additional_env=ENVIRONMENT)


def resume():
    """Resume the player."""

    def end(event, context):
        if event.returncode:
            raise RuntimeError(f"the player cannot be resumed: exit code {event.returncode}")

    command = ["ros2", "service", "call", *RESUME]
    return ExecuteProcess(cmd=command, output="log", on_exit=end, additional_env=ENVIRONMENT)


class Start:
    """Polls the graph until the tasks subscribe, starts the player, and then resumes it."""

    def __init__(self, player, topic, wanted):
        self._player, self._topic, self._wanted = player, topic, wanted
        self._polls = self._settled = 0
        self._is_started = False
        self._seen = None

    def poll(self):
        """Look again after a moment."""
        return TimerAction(period=POLL_S, actions=[OpaqueFunction(function=self._look)])

    def _look(self, context):
        node = get_ros_node(context)
        self._polls += 1
        # Nodes subscribe when they become active, with models loaded and warmed up.
        there = node.get_subscriptions_info_by_topic(self._topic)
        # A node may have two subscriptions as long as it has not discovered the player.
        nodes = {(one.node_namespace, one.node_name) for one in there}
        if not self._is_started:
            if len(nodes) >= self._wanted:
                self._is_started = True
                return [self._player, self.poll()]
            if self._polls % SAY_EVERY == 1:
                note = f"waiting for the tasks to subscribe to {self._topic}"
                return [LogInfo(msg=note), self.poll()]
            return [self.poll()]
        if self._player.return_code is not None:  # it has said why
            return []
        players = node.get_publishers_info_by_topic(self._topic)
        seen = {(one.node_name, tuple(one.endpoint_gid)) for one in there}
        is_same = len(nodes) >= self._wanted and seen == self._seen
        is_there = any(one.node_name == PLAYER for one in players)
        self._settled = self._settled + 1 if is_same and is_there else 0
        self._seen = seen
        if self._settled < SETTLED_POLLS:
            return [self.poll()]
        return [LogInfo(msg=f"playing {self._topic}"), resume()]


def start(context):
    perception = PythonLaunchDescriptionSource(PERCEPTION)
    theirs = perception.get_launch_description(context).get_launch_arguments()
    known = [*(name for name, _, _ in ARGUMENTS), *(one.name for one in theirs)]
    given = context.launch_configurations
    said = check_arguments("replay.launch.py", known, given, sys.argv)
    arguments = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    if not arguments["bag"]:
        raise ValueError("no bag to play; fix: bag:=FOLDER or bag:=FILE")
    path = Path(arguments["bag"]).expanduser()
    topic = arguments["topic"]
    topic = topic if topic.startswith("/") or not topic else f"/{topic}"
    with open_image_bag(path, topic, messages=False) as bag:
        topic, compressed = bag.topic, bag.kind == COMPRESSED
        said += [f"{path}: {note}" for note in bag.notes]
    if not has_package("ros2bag"):
        raise RuntimeError(
            "ros2 bag is not installed (ros-<distro>-ros2bag and -rosbag2-storage-mcap)"
        )
    # The nodes add the transport's suffix to the name themselves.
    base = topic.removesuffix(SUFFIX) if compressed else topic
    if compressed and base == topic:
        raise ValueError(f"compressed images must be on a topic that ends in {SUFFIX}: {topic}")
    include = IncludeLaunchDescription(
        perception,
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
        wanted = 1 if is_true(values["composed"]) else len(tasks)
        return [Start(player, topic, wanted).poll()]

    return [*(LogInfo(msg=note) for note in said), include, OpaqueFunction(function=wait)]


def generate_launch_description():
    declared = [DeclareLaunchArgument(n, default_value=d, description=t) for n, d, t in ARGUMENTS]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])
