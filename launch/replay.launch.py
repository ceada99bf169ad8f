"""Runs the nodes on a recorded bag, under its clock; it is played once every task takes frames.

All arguments of perception.launch.py apply here too. To lose no frame, and for statistics, use
`jetson-dnn-rt evaluate`, which reads the bag itself.
"""

from pathlib import Path

import yaml
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

from jetson_dnn_rt.nodes.process.launch_tools import has_package, is_true
from launch import LaunchDescription

SHARE = Path(get_package_share_directory("jetson_dnn_rt"))
PERCEPTION = str(SHARE / "launch" / "perception.launch.py")

ARGUMENTS = (
    ("bag", "", "folder of the bag, or its file; must be given"),
    ("topic", "", "its images; empty = the only image topic in metadata.yaml"),
    ("rate", "1.0", "times real time"),
    ("clock_rate", "100", "messages on /clock a second"),
    ("loop", "false", "start again at the end"),
    ("end_with_bag", "true", "end the nodes when the bag ends"),
)
RAW, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
SUFFIX = "/compressed"

POLL_S = 0.2
SAY_EVERY = 50
"""Polls between two progress lines: ten seconds."""

DRAIN_S = 2.0
"""Time from the end of the bag to that of the nodes, for the last jobs."""


def read_topics(bag):
    """Types by topic, from the bag's metadata where there are any."""
    file = bag / "metadata.yaml"
    if not file.is_file():
        return {}
    information = yaml.safe_load(file.read_text(encoding="utf-8"))["rosbag2_bagfile_information"]
    listed = information["topics_with_message_count"]
    return {one["topic_metadata"]["name"]: one["topic_metadata"]["type"] for one in listed}


def choose_topic(bag, topic):
    """The topic to play, and whether it is compressed."""
    topics = read_topics(bag)
    images = {name: kind for name, kind in topics.items() if kind in (RAW, COMPRESSED)}
    if topic:
        if topics and topic not in images:
            known = ", ".join(images) or "none"
            raise ValueError(
                f"topic {topic} is not an image topic of {bag} (image topics: {known})"
            )
        return topic, images.get(topic, RAW) == COMPRESSED or topic.endswith(SUFFIX)
    if len(images) != 1:
        found = ", ".join(images) or "none in metadata.yaml"
        raise ValueError(f"no topic of {bag} given; fix: topic:=NAME (image topics: {found})")
    ((name, kind),) = images.items()
    return name, kind == COMPRESSED


def play(arguments, topic):
    command = ["ros2", "bag", "play", arguments["bag"], "--clock", arguments["clock_rate"]]
    command += ["--rate", arguments["rate"], "--topics", topic]
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

    return ExecuteProcess(cmd=command, output="screen", on_exit=end)


def wait_for_tasks(arguments, topic, wanted, looks=0):
    """Poll until the tasks subscribe, then play."""

    def look(context):
        # Nodes subscribe when they become active, with models loaded and warmed up.
        if get_ros_node(context).count_subscribers(topic) >= wanted:
            return [LogInfo(msg=f"playing {arguments['bag']}"), play(arguments, topic)]
        again = wait_for_tasks(arguments, topic, wanted, looks + 1)
        if looks % SAY_EVERY == 0:
            return [LogInfo(msg=f"waiting for the tasks to subscribe to {topic}"), again]
        return [again]

    return TimerAction(period=POLL_S, actions=[OpaqueFunction(function=look)])


def start(context):
    arguments = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    given = context.launch_configurations
    if not arguments["bag"]:
        raise ValueError("no bag to play; fix: bag:=FOLDER")
    bag = Path(arguments["bag"]).expanduser()
    if not bag.exists():
        raise ValueError(f"bag {bag} is not there")
    if not has_package("ros2bag"):
        raise RuntimeError(
            "ros2 bag is not installed (ros-<distro>-ros2bag and -rosbag2-storage-default-plugins)"
        )
    arguments["bag"] = str(bag)
    topic, compressed = choose_topic(bag, arguments["topic"])
    topic = topic if topic.startswith("/") else f"/{topic}"
    # The nodes add the transport's suffix to the name themselves.
    base = topic[: -len(SUFFIX)] if compressed and topic.endswith(SUFFIX) else topic
    if compressed and base == topic:
        raise ValueError(f"compressed images must be on a topic that ends in {SUFFIX}: {topic}")
    alone = not is_true(given.get("composed", "true"))
    tasks = 1 if given.get("segmenter_model") == "none" else 2
    include = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(PERCEPTION),
        launch_arguments={
            "use_sim_time": "true",
            "input_image_topic": base,
            "image_transport": "compressed" if compressed else "raw",
        }.items(),
    )
    # Composed tasks share one subscription.
    return [include, wait_for_tasks(arguments, topic, tasks if alone else 1)]


def generate_launch_description():
    declared = [DeclareLaunchArgument(n, default_value=d, description=t) for n, d, t in ARGUMENTS]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])
