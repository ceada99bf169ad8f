# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Transitions run beside the ROS thread: frames, services and other nodes go on meanwhile."""

from __future__ import annotations

import os
import re
import threading

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from lifecycle_msgs.msg import Transition, TransitionEvent
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import Parameter, ParameterValue
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import ReliabilityPolicy
from ros_graph import TIMEOUT_S, Ros
from sensor_msgs.msg import Image
from std_msgs.msg import Float64
from std_srvs.srv import SetBool
from task_bench import Log, Seen, make_image

from jetson_dnn_rt.errors import ModelError, StillRunningError
from jetson_dnn_rt.nodes.perception import PerceptionNode
from jetson_dnn_rt.nodes.process import distribution, late_answer
from jetson_dnn_rt.nodes.process.lifecycle import (
    ERROR,
    FAILURE,
    SUCCESS,
    ManagedNode,
    overrides_to_parameters,
)
from jetson_dnn_rt.nodes.tasks.task_node import DetectorNode
from jetson_dnn_rt.safety.faults import FAULTS

CONFIGURE, CLEANUP = Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_CLEANUP
ACTIVATE, DEACTIVATE = Transition.TRANSITION_ACTIVATE, Transition.TRANSITION_DEACTIVATE


@pytest.fixture(params=["the fastest executor", "SingleThreadedExecutor"])
def ros(request, monkeypatch):
    """As the fixture of all tests, also with the executor of distributions without a faster."""
    if request.param == "SingleThreadedExecutor":
        monkeypatch.setattr(
            distribution, "make_executor", lambda context: SingleThreadedExecutor(context=context)
        )
    ros = Ros()
    try:
        yield ros
    finally:
        ros.close()


class Held:
    """Replaces a method of a node by one that waits first; `inside` is set meanwhile."""

    def __init__(self, node, method):
        self.inside, self._go = threading.Event(), threading.Event()
        run = getattr(node, method)

        def wait():
            self.inside.set()
            assert self._go.wait(TIMEOUT_S)
            run()

        setattr(node, method, wait)

    def release(self):
        self._go.set()


class Request:
    """A request to change a node's state, which does not wait for the answer."""

    def __init__(self, ros, name, transition):
        client = ros.call(lambda: ros.probe.create_client(ChangeState, f"{name}/change_state"))
        assert client.wait_for_service(TIMEOUT_S)
        request = ChangeState.Request(transition=Transition(id=transition))
        self._answered = threading.Event()
        self._future = ros.call(lambda: client.call_async(request))
        self._future.add_done_callback(lambda _: self._answered.set())

    @property
    def is_answered(self):
        return self._answered.is_set()

    def wait(self):
        assert self._answered.wait(TIMEOUT_S)
        return self._future.result().success


def change_state(ros, name, transition):
    return Request(ros, name, transition).wait()


def state_of(ros, name):
    return ros.request(GetState, f"{name}/get_state", GetState.Request()).current_state.label


def set_parameter(ros, node, name, value):
    value = ParameterValue(type=3, double_value=value)
    request = SetParameters.Request(parameters=[Parameter(name=name, value=value)])
    return ros.request(SetParameters, f"{node}/set_parameters", request).results[0]


class Graph:
    """A detector and a segmenter in one process, fed by one topic."""

    def __init__(self, ros):
        self.ros, self.seen = ros, Seen()
        self.node = ros.make(
            PerceptionNode,
            overrides={
                "perception": {"tasks": ["detector", "segmenter"], "cameras": [""]},
                "detector": {"model": "null:1", "warmup_runs": 2, "deadline_ms": 500.0},
                "segmenter": {
                    "model": "null:1,segmentation", "warmup_runs": 2, "deadline_ms": 500.0
                },
            },
            observer=self.seen,
        )  # fmt: skip
        self.detector, self.segmenter = self.node.tasks.values()
        assert self.node.autostart(), self.node.fault
        self.images = ros.advertise(Image, "image_raw")
        ros.wait(self.images.get_subscription_count, "the subscription")

    def send(self, *tasks):
        """Send a frame and wait until it has ended in these tasks."""
        before = {task: len(self.seen.of(task)) for task in tasks}
        self.images.publish(make_image(self.ros))
        for task, count in before.items():
            self.ros.wait(lambda: len(self.seen.of(task)) > count, f"a frame of {task}")  # noqa: B023


def test_frames_of_others_and_services_go_on_while_a_task_is_configured(ros):
    """ROBOTS 7: loading a model stopped the frames and services of the whole process."""
    graph = Graph(ros)
    graph.send("detector", "segmenter")
    assert change_state(ros, "segmenter", DEACTIVATE)
    assert change_state(ros, "segmenter", CLEANUP)
    log, held = Log(graph.segmenter), Held(graph.segmenter, "configure")
    first = Request(ros, "segmenter", CONFIGURE)
    assert held.inside.wait(TIMEOUT_S)
    for _ in range(3):
        graph.send("detector")
    assert state_of(ros, "segmenter") == "configuring"
    assert state_of(ros, "detector") == "active"
    # A second request is refused at once, with the reason in the log.
    assert not change_state(ros, "segmenter", CONFIGURE)
    assert log.count("change_state is refused: another transition has not ended") == 1
    # Parameters can be read; those of the other task can be set.
    names = GetParameters.Request(names=["confidence_threshold"])
    (value,) = ros.request(GetParameters, "segmenter/get_parameters", names).values
    assert value.double_value == graph.segmenter.parameters.confidence_threshold
    refused = set_parameter(ros, "segmenter", "confidence_threshold", 0.75)
    assert (refused.successful, "while the node changes its state" in refused.reason) == (0, 1)
    assert set_parameter(ros, "detector", "confidence_threshold", 0.75).successful
    answer = ros.request(SetBool, "segmenter/enable", SetBool.Request(data=False))
    assert (answer.success, "changes its state" in answer.message) == (False, True)
    assert not first.is_answered
    held.release()
    assert first.wait()
    assert state_of(ros, "segmenter") == "inactive"
    assert set_parameter(ros, "segmenter", "confidence_threshold", 0.75).successful
    assert change_state(ros, "segmenter", ACTIVATE)
    graph.send("detector", "segmenter")
    assert not FAULTS.snapshot()


def test_the_nodes_of_a_process_change_their_states_one_after_the_other(ros):
    """They share a session: a task that is loaded must not see another one leave."""
    graph = Graph(ros)
    assert change_state(ros, "segmenter", DEACTIVATE)
    held = Held(graph.segmenter, "activate")
    first = Request(ros, "segmenter", ACTIVATE)
    assert held.inside.wait(TIMEOUT_S)
    second = Request(ros, "detector", DEACTIVATE)
    graph.send("detector")
    assert state_of(ros, "detector") == "active"
    with pytest.raises(TimeoutError, match="another transition has not ended"):
        graph.node.shut_down(timeout_s=0)
    held.release()
    assert first.wait()
    assert second.wait()
    assert state_of(ros, "detector") == "inactive"
    graph.send("segmenter")


def test_a_child_is_not_reconfigured_while_its_process_is(ros):
    """What leads a node has read its parameters, and is about to change its state."""
    graph = Graph(ros)
    assert change_state(ros, "perception", DEACTIVATE)
    held = Held(graph.detector, "activate")
    whole = Request(ros, "perception", ACTIVATE)
    assert held.inside.wait(TIMEOUT_S)
    assert state_of(ros, "segmenter") == "inactive"
    assert not change_state(ros, "segmenter", CLEANUP)
    assert not set_parameter(ros, "segmenter", "confidence_threshold", 0.75).successful
    held.release()
    assert whole.wait()
    assert state_of(ros, "segmenter") == "active"


class Publishing(ManagedNode):
    """A node whose transitions raise what they are told to; configured, it has a topic."""

    def __init__(self, **options):
        super().__init__("publishing", **options)
        self.errors: dict[str, BaseException] = {}
        self.threads: dict[str, tuple[str, int]] = {}

    def _pass(self, name):
        self.threads[name] = threading.current_thread().name, os.sched_getscheduler(0)
        if (error := self.errors.pop(name, None)) is not None:
            raise error

    def configure(self):
        self.create_publisher(Float64, "numbers", 10)
        self._pass("configure")

    def activate(self):
        self._pass("activate")

    def deactivate(self):
        self._pass("deactivate")

    def cleanup(self):
        self._pass("cleanup")

    def end(self):
        self._pass("end")


def listen_to_states(ros):
    """The states that a node goes through, as others see them."""
    inbox = ros.listen(TransitionEvent, "publishing/transition_event")
    ros.wait(inbox.subscription.get_publisher_count, "the node")

    def wait(*states):
        def find(messages):
            return len(messages) >= len(states) and [one.goal_state.label for one in messages]

        assert inbox.wait(find, f"the way over {states}") == list(states)
        inbox.clear()

    return wait


@pytest.mark.parametrize("failing", ["configure", "activate", "deactivate", "cleanup"])
def test_an_unforeseen_error_leads_through_error_processing_to_unconfigured(ros, failing):
    """ROBOTS: all errors returned FAILURE, and ErrorProcessing was never entered."""
    node = ros.make(Publishing)
    way = {
        "configure": ("configuring", "inactive", CONFIGURE),
        "activate": ("activating", "active", ACTIVATE),
        "deactivate": ("deactivating", "inactive", DEACTIVATE),
        "cleanup": ("cleaningup", "unconfigured", CLEANUP),
    }
    before = [*way][: [*way].index(failing)]
    wait_for_states = listen_to_states(ros)
    for name in before:
        assert change_state(ros, "publishing", way[name][2])
        wait_for_states(*way[name][:2])
    node.errors[failing] = ValueError("unforeseen")
    assert not change_state(ros, "publishing", way[failing][2])
    wait_for_states(way[failing][0], "errorprocessing", "unconfigured")
    assert "ValueError: unforeseen" in node.fault
    assert node.count_publishers("numbers") == 0
    assert change_state(ros, "publishing", CONFIGURE)
    assert node.fault == ""
    assert node.count_publishers("numbers") == 1


@pytest.mark.parametrize(
    ("failing", "states"),
    [("configure", ("configuring", "unconfigured")), ("activate", ("activating", "inactive"))],
)
def test_a_refusal_leaves_the_node_in_its_state(ros, failing, states):
    """What the user can mend (a file, a value) is no fault of the node."""
    node = ros.make(Publishing)
    if failing == "activate":
        assert node.trigger_configure() == SUCCESS
    node.errors[failing] = ModelError("no such file")
    wait_for_states = listen_to_states(ros)
    assert not change_state(ros, "publishing", CONFIGURE if failing == "configure" else ACTIVATE)
    wait_for_states(*states)
    assert node.fault == "no such file"


def test_a_shutdown_that_fails_finalizes_all_the_same(ros):
    node = ros.make(Publishing)
    node.errors["end"] = ValueError("unforeseen")
    assert node.trigger_shutdown() == FAILURE
    assert state_of(ros, "publishing") == "finalized"


def test_a_destroyed_node_still_tells_its_last_state(ros):
    """A thread that is late asks for it; rclpy's own object would end the process then."""
    node = ros.make(Publishing)
    assert node.trigger_shutdown() == SUCCESS
    for _ in range(2):
        ros.call(node.destroy_node)
        assert node.state_name == "finalized"
        assert node.trigger_shutdown() == SUCCESS


def test_an_unforeseen_error_in_a_child_releases_the_whole_process(ros):
    """Half of the tasks, running, would look like success."""
    graph = Graph(ros)
    graph.node.trigger_deactivate()

    def fail():
        raise ValueError("unforeseen")

    graph.segmenter.activate = fail
    assert graph.node.trigger_activate() == ERROR
    assert "task segmenter: ValueError: unforeseen" in graph.node.fault
    assert {one.state_name for one in (graph.node, *graph.node.children)} == {"unconfigured"}
    del graph.segmenter.activate
    assert graph.node.autostart(), graph.node.fault
    ros.wait(graph.images.get_subscription_count, "the subscription")
    graph.send("detector", "segmenter")


def test_a_transition_does_not_run_on_the_ros_thread(ros):
    """There it would stop the frames, and could wait for itself."""
    node = ros.make(Publishing)
    with pytest.raises(RuntimeError, match="cannot run on the ROS thread"):
        ros.call(node.trigger_configure)
    # That thread may have real-time priority; here another class that needs no rights.
    ros.call(lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)))
    assert change_state(ros, "publishing", CONFIGURE)
    assert node.threads["configure"] == ("transition of publishing", os.SCHED_OTHER)


def test_a_transition_that_the_state_does_not_allow_is_refused_and_no_fault(ros):
    """Jazzy's rclpy raises, which would be an error in the log with a traceback."""
    node = ros.make(Publishing)
    log = Log(node)
    assert not change_state(ros, "publishing", ACTIVATE)
    assert log.count(f"no transition {ACTIVATE} leads out of unconfigured") == 1
    assert not FAULTS.snapshot()
    assert change_state(ros, "publishing", CONFIGURE)


def test_a_request_is_answered_where_no_thread_can_be_started(ros, monkeypatch):
    """A limit on processes: the node must take the next request."""
    node = ros.make(Publishing)

    def refuse(*arguments):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(late_answer, "start_thread", refuse)
        assert not change_state(ros, "publishing", CONFIGURE)
    assert node.state_name == "unconfigured"
    assert change_state(ros, "publishing", CONFIGURE)
    FAULTS.clear()


def test_a_request_is_answered_where_priorities_cannot_be_changed(ros, monkeypatch):
    """A filter of system calls, as of a container."""

    def refuse(*arguments):
        raise PermissionError(1, "Operation not permitted")

    ros.make(Publishing)
    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_setscheduler", refuse)
        assert change_state(ros, "publishing", CONFIGURE)


def test_a_task_that_is_shut_down_leaves_the_process_and_others_go_on(ros):
    graph = Graph(ros)
    graph.send("detector", "segmenter")
    session = graph.node.bridge.session
    assert change_state(ros, "segmenter", Transition.TRANSITION_ACTIVE_SHUTDOWN)
    assert not session.is_active("segmenter")
    assert list(session.tasks) == ["detector"]
    assert list(session.describe_tasks()) == ["detector"]
    answer = ros.request(SetBool, "segmenter/enable", SetBool.Request(data=True))
    assert (answer.success, "finalized" in answer.message) == (False, True)
    graph.send("detector")
    assert not FAULTS.snapshot()


def test_a_task_whose_stage_does_not_return_is_deactivated_all_the_same(ros, monkeypatch):
    """Its frames have stopped, so `active` would be wrong."""
    graph = Graph(ros)
    session, log = graph.node.bridge.session, Log(graph.segmenter)
    remove = session.executor.remove_task

    def give_up(name):
        remove(name)
        raise StillRunningError(f"a stage of {name} has not returned")

    with monkeypatch.context() as patch:
        patch.setattr(session.executor, "remove_task", give_up)
        assert change_state(ros, "segmenter", DEACTIVATE)
    assert graph.segmenter.state_name == "inactive"
    assert log.count("deactivated, but a stage of segmenter has not returned") == 1
    graph.send("detector")


@pytest.mark.parametrize("name", ["detector", "perception"])
def test_quality_of_service_can_be_changed_between_two_configurations(ros, name):
    """rclpy keeps the first profile of a topic that has parameters for overrides."""
    graph = Graph(ros)

    def reliability():
        (info,) = ros.probe.get_publishers_info_by_topic("/detections")
        return info.qos_profile.reliability

    assert reliability() is ReliabilityPolicy.RELIABLE
    assert change_state(ros, name, DEACTIVATE)
    assert change_state(ros, name, CLEANUP)
    assert ros.set(graph.detector, output_qos="SENSOR_DATA").successful
    assert change_state(ros, name, CONFIGURE)
    ros.wait(lambda: ros.probe.count_publishers("/detections") == 1, "the publisher")
    assert reliability() is ReliabilityPolicy.BEST_EFFORT


@pytest.mark.parametrize(
    ("policy", "value", "text"),
    [
        ("reliability", "besteffort", "qos_overrides./detections.publisher: .*besteffort"),
        ("durability", "volatile", "qos_overrides./detections.publisher.durability is not one of"),
        ("depth", "many", "qos_overrides./detections.publisher: "),
    ],
)
def test_an_override_that_cannot_be_used_is_a_refusal_that_names_it(ros, policy, value, text):
    values = {"model": "null:1", f"qos_overrides./detections.publisher.{policy}": value}
    overrides = overrides_to_parameters(values)
    node = ros.make(DetectorNode, parameter_overrides=overrides)
    assert node.trigger_configure() == FAILURE
    assert re.search(text, node.fault)
    assert node.state_name == "unconfigured"


@pytest.mark.parametrize("label", ["\x1b[2Jconfigure", "configure\nforged", "no_such"])
def test_a_label_that_is_no_transition_is_refused_and_steers_no_terminal(ros, label, capfd):
    """Before, escape codes of a label reached the terminal as they came."""
    ros.make(ManagedNode, "labelled")
    request = ChangeState.Request(transition=Transition(label=label))
    assert not ros.request(ChangeState, "labelled/change_state", request).success
    said = capfd.readouterr().err
    assert "\x1b[2J" not in said
    assert "change_state is refused: no transition" in said
    request.transition.label = "configure"
    assert ros.request(ChangeState, "labelled/change_state", request).success


def test_texts_from_elsewhere_are_logged_so_that_they_steer_no_terminal(ros, capfd):
    logger = ros.make(ManagedNode, "speaking").get_logger()
    logger.error("of a file: \x1b]0;taken\x07")
    logger.warning("of the network: \x9b2J")
    assert logger.name == "speaking"
    said = capfd.readouterr().err
    assert "of a file: ?]0;taken?" in said
    assert "of the network: ?2J" in said
