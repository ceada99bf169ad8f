# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A lifecycle node that reports its failures, and can start itself."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from lifecycle_msgs.srv import ChangeState, GetAvailableStates, GetAvailableTransitions, GetState
from rcl_interfaces.msg import SetParametersResult
from rcl_interfaces.srv import DescribeParameters, GetParameters, GetParameterTypes, ListParameters
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import ParameterException
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from jetson_dnn_rt.config.checked_names import (
    check_node,
    describe_unknown,
    is_shared,
    list_parameters,
)
from jetson_dnn_rt.config.declaration import Values
from jetson_dnn_rt.config.parameter_file import read_parameter_files
from jetson_dnn_rt.config.process import CommonConfig
from jetson_dnn_rt.config.suggestions import RESEMBLES, find_similar
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.nodes.process.arguments import find_params_files, refuse_rules_of_other_nodes
from jetson_dnn_rt.nodes.process.distribution import (
    PublisherEventCallbacks,
    SubscriptionEventCallbacks,
    UnsupportedEventTypeError,
    find_state,
    find_transitions,
    given_parameters,
    release_state,
)
from jetson_dnn_rt.nodes.process.guard import guard, guard_client, guard_service
from jetson_dnn_rt.nodes.process.late_answer import answer_late
from jetson_dnn_rt.nodes.process.paced_answers import PacedAnswers
from jetson_dnn_rt.nodes.process.parameters import ParameterSet, gate_of
from jetson_dnn_rt.nodes.process.qos import EventPoller, make_events, narrow_overrides
from jetson_dnn_rt.nodes.process.spinner import SpinEndedError, Spinner
from jetson_dnn_rt.printable import make_printable
from jetson_dnn_rt.safety.faults import FAULTS, describe_error, safe_text

if TYPE_CHECKING:
    from jetson_dnn_rt.runtime.start_times import StartTimes

EVENT_PERIOD_S = 0.5

LONGEST_REASON = 2000
"""Characters of the reason why a transition failed, which is repeated in diagnostics."""

LONGEST_NAME = 100
"""Characters of a logged name that came from the network."""

REPORTING = (
    *(DescribeParameters, GetParameters, GetParameterTypes, ListParameters),
    *(GetState, GetAvailableStates, GetAvailableTransitions),
)
"""Services of every node that only report."""

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE
ERROR = TransitionCallbackReturn.ERROR


class LedNodeError(Exception):
    """An unforeseen error in a node that this one leads; its text says where."""


def on_ros_thread(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make `ManagedNode.call_ros` run a method of a node."""

    @functools.wraps(method)
    def run(self: ManagedNode, *args: Any, **options: Any) -> Any:
        return self.call_ros(lambda: method(self, *args, **options))

    return run


class PrintableLogger:
    """A logger of rclpy that makes texts printable, as parts of them come from the network."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)

    # A method for each level: rclpy refuses a second level from the same line of code.

    def debug(self, text: str, **options: Any) -> bool:
        """Log at level DEBUG."""
        return bool(self._logger.debug(make_printable(text, lines=True), **options))

    def info(self, text: str, **options: Any) -> bool:
        """Log at level INFO."""
        return bool(self._logger.info(make_printable(text, lines=True), **options))

    def warning(self, text: str, **options: Any) -> bool:
        """Log at level WARN."""
        return bool(self._logger.warning(make_printable(text, lines=True), **options))

    def error(self, text: str, **options: Any) -> bool:
        """Log at level ERROR."""
        return bool(self._logger.error(make_printable(text, lines=True), **options))

    def fatal(self, text: str, **options: Any) -> bool:
        """Log at level FATAL."""
        return bool(self._logger.fatal(make_printable(text, lines=True), **options))


class ManagedNode(LifecycleNode):
    """Base of the package's nodes.

    Subclasses override `configure`, `activate`, `deactivate`, `cleanup` and `end`. What these
    raise is logged and kept in `fault` (rclpy itself would swallow it). After a
    `JetsonDnnRtError` the node is in the state it came from. Any other error is unforeseen: the
    node goes through ErrorProcessing, which releases everything, and is unconfigured then, or
    finalized when that fails too.

    Transitions never run on the ROS thread, which goes on with frames, timers and services: those
    requested of ``change_state`` have a thread of their own, others run on that of the caller.
    Nodes with the same `turn`, as those of one process have, change their states one at a time.
    Meanwhile ``change_state`` of the node and of those it leads (`children`) refuses, and their
    parameters cannot be set.

    rclpy writes `qos_overrides` into the profile that it is given, so each publisher and
    subscription gets a copy.

    Every callback is guarded (`nodes.process.guard`): of subscriptions, timers, services, QoS
    events, parameter checks and the futures of clients, including those of rclpy's own services.
    """

    def __init__(self, name: str, *, turn: threading.RLock | None = None, **options: Any) -> None:
        # Node's constructor already creates publishers.
        self.spinner: Spinner | None = None  # whose thread is the ROS thread
        # Of the process, until the first configuration of the node that it was started for.
        self.start_times: StartTimes | None = None
        self.begun_ns = time.monotonic_ns()  # when it began to be made
        self._usual_name = name  # where no remapping changes it
        self.turn = turn or threading.RLock()
        self._requested = False  # `change_state` was accepted and is not answered
        self._transitions = 0  # in progress, of this node and of those that lead it
        self._events = EventPoller(self)
        self._live: set[Any] = set()
        """Timers and subscriptions that are not destroyed."""
        super().__init__(name, **options)
        self._find_state, self._find_transitions = find_state(self), find_transitions(self)
        # Services of the life cycle, which rclpy makes without `create_service`.
        for service in self.services:
            if hasattr(service.callback, "__wrapped__"):
                continue
            if service.srv_type is ChangeState:
                change = functools.partial(self._change_state, service.callback)
                service.callback = functools.partial(self._run, change)
            service.callback = self._guard_service(
                service.callback, service.srv_type, service.srv_name
            )
            if service.srv_type is ChangeState:
                answer_late(service, f"transition of {name}", self._accept, self._end_request)
        self._answers = PacedAnswers(name)
        for service in self.services:
            if service.srv_type in REPORTING:
                self._answers.pace(service)
        self.fault = ""
        self.fault_parameter = ""  # whose value is to blame for it, where that is known
        self._is_silent = False
        self._locked = ParameterSet(self, CommonConfig).value.lock_configuration
        gate_of(self).locked = self._locked
        self._was_configured = self._inside = False
        # Publishers and timers that `configure` did not make; None before its first call.
        self._permanent: set[Any] | None = None
        self.create_timer(EVENT_PERIOD_S, self._events.poll)

    def get_logger(self) -> Any:
        """Logger of the node, which passes no escape codes on to a terminal."""
        return PrintableLogger(super().get_logger())

    def declare(self, kind: type[Values], **options: Any) -> ParameterSet[Values]:
        """Declare parameters; what is not dynamic is fixed while the node is configured."""
        return ParameterSet(
            self,
            kind,
            is_fixed=lambda: not self.is_unconfigured,
            is_busy=lambda: self.in_transition,
            **options,
        )

    def refuse_misspelt(self) -> None:
        """Raise ConfigurationError where the configuration misspells a parameter of the node.

        rclpy silently drops values that name no parameter. Those for other nodes, which a section
        for all of them may hold, are only logged when the node is configured.
        """
        declared = list(self.get_parameters_by_prefix(""))
        for name in self._find_undeclared():
            if name not in list_parameters() and find_similar(name, declared, RESEMBLES):
                raise ConfigurationError(f"{self.get_name()}: {describe_unknown(name, declared)}")

    def check_files(self, arguments: Sequence[str]) -> None:
        """Check the names in a command line and its parameter files; see `check_node`.

        ConfigurationError: one is misspelt. rclpy itself drops what matches no node.
        """
        refuse_rules_of_other_nodes(arguments, [self.get_name()])
        notes: list[str] = []
        if paths := find_params_files(arguments):
            file = read_parameter_files(paths)
            names = self.get_parameters_by_prefix("")
            notes = check_node(file, self.get_fully_qualified_name(), names, self._usual_name)
        for note in notes:
            self.get_logger().warning(note)

    def tell_waiting(self) -> None:
        """Log what an unconfigured or inactive node waits for."""
        name = self.get_fully_qualified_name()
        if self.state_name == "unconfigured":
            self.get_logger().info(
                "unconfigured: nothing is loaded and nothing is published yet; it waits for a "
                f"lifecycle manager, or for: ros2 lifecycle set {name} configure, then "
                f"ros2 lifecycle set {name} activate. To start at once: --ros-args -p "
                "autostart:=true"
            )
        elif self.state_name == "inactive":
            self.get_logger().info(f"inactive: it waits for: ros2 lifecycle set {name} activate")

    def _find_undeclared(self) -> list[str]:
        """Parameters that the configuration sets and that this node does not have."""
        return [
            name
            for name in given_parameters(self)
            if not is_shared(name) and not self.has_parameter(name)
        ]

    def set_parameters_atomically(self, parameter_list: list[Any]) -> SetParametersResult:
        """Set all parameters or none; an unknown name is refused with the one that is like it."""
        for one in parameter_list:
            if not self.has_parameter(one.name):
                reason = describe_unknown(one.name, self.get_parameters_by_prefix(""))
                return SetParametersResult(successful=False, reason=reason)
        return super().set_parameters_atomically(parameter_list)

    # -- the ROS thread ------------------------------------------------------------------------

    def call_ros(self, function: Callable[[], Any]) -> Any:
        """Run a function on the ROS thread, between two callbacks, and return its value.

        Frames wait meanwhile. Where no thread spins the node, the caller runs the function.
        """
        if self.spinner is not None:
            with contextlib.suppress(SpinEndedError):
                return self.spinner.call(function)
        return function()

    # -- guarded callbacks and polled events ---------------------------------------------------

    @on_ros_thread
    def create_publisher(self, msg_type: Any, topic: str, qos_profile: Any, **options: Any) -> Any:
        """Create a publisher that warns when a subscription does not match."""
        events = make_events(
            PublisherEventCallbacks,
            lambda policy: self.get_logger().warning(
                f"{topic}: a subscription requests another {policy} than is offered: it gets "
                "nothing; change output_qos, or qos_overrides of either side"
            ),
        )
        options.setdefault("event_callbacks", events)
        create = super().create_publisher
        kind = "publisher"
        return self._create_polled(
            PublisherEventCallbacks, kind, create, msg_type, topic, copy(qos_profile), **options
        )

    @on_ros_thread
    def create_subscription(
        self,
        msg_type: Any,
        topic: str,
        callback: Callable[..., Any],
        qos_profile: Any,
        **options: Any,
    ) -> Any:
        """Create a subscription whose events are polled.

        Once destroyed, it ignores a message that was already queued.
        """
        guarded = guard(callback, f"{self.get_name()}: subscription {topic}")

        def call_live(*given: Any) -> None:
            if subscription in self._live:
                guarded(*given)

        # rclpy decides by the signature whether a callback takes the message info, too.
        call_live.__signature__ = inspect.signature(callback)  # type: ignore[attr-defined]
        none = SubscriptionEventCallbacks(use_default_callbacks=False)
        options.setdefault("event_callbacks", none)
        create = super().create_subscription
        kind, own = "subscription", copy(qos_profile)
        subscription = self._create_polled(
            SubscriptionEventCallbacks, kind, create, msg_type, topic, call_live, own, **options
        )
        self._live.add(subscription)
        return subscription

    def _create_polled(
        self,
        events: type[Any],
        kind: str,
        create: Callable[..., Any],
        msg_type: Any,
        topic: str,
        *args: Any,
        **options: Any,
    ) -> Any:
        """Create a publisher or subscription, without events where the middleware lacks them.

        On the ROS thread, as an executor must not see the events before `EventPoller` has them.
        """
        overridden = options.get("qos_overriding_options")
        if overridden is not None:
            overridden = narrow_overrides(self, kind, topic, overridden)
            options["qos_overriding_options"] = overridden
        try:
            entity = create(msg_type, topic, *args, **options)
        except UnsupportedEventTypeError:
            options["event_callbacks"] = events(use_default_callbacks=False)
            entity = create(msg_type, topic, *args, **options)
        except (RuntimeError, ParameterException) as error:
            if overridden is None or not overridden.policy_kinds:
                raise
            name = f"qos_overrides.{self.resolve_topic_name(topic)}.{kind}"
            raise ConfigurationError(f"{name}: {error}") from error
        return self._events.watch(entity)

    @on_ros_thread
    def create_timer(
        self, timer_period_sec: float, callback: Callable[[], None], *args: Any, **options: Any
    ) -> Any:
        """Create a timer, by default of the steady clock: simulated time may stand still.

        Once destroyed, it ignores an event that was already queued.
        """
        options.setdefault("clock", Clock(clock_type=ClockType.STEADY_TIME))
        name = getattr(callback, "__qualname__", type(callback).__name__)
        callback = guard(callback, f"{self.get_name()}: timer {name}")

        def call_live() -> None:
            if timer in self._live:
                callback()

        timer = super().create_timer(timer_period_sec, call_live, *args, **options)
        self._live.add(timer)
        return timer

    def create_service(
        self,
        srv_type: Any,
        srv_name: str,
        callback: Callable[..., Any],
        *args: Any,
        **options: Any,
    ) -> Any:
        """Create a service that always answers."""
        callback = self._guard_service(callback, srv_type, srv_name)
        return super().create_service(srv_type, srv_name, callback, *args, **options)

    def _guard_service(
        self, callback: Callable[..., Any], srv_type: Any, srv_name: str
    ) -> Callable[..., Any]:
        return guard_service(callback, srv_type, f"{self.get_name()}: service {srv_name}")

    def create_client(self, srv_type: Any, srv_name: str, *args: Any, **options: Any) -> Any:
        """Create a client whose futures have guarded callbacks."""
        client = super().create_client(srv_type, srv_name, *args, **options)
        return guard_client(client, f"{self.get_name()}: answer of {srv_name}")

    def add_on_set_parameters_callback(self, callback: Callable[..., Any]) -> None:
        """Add a check of new parameters, which are refused when it raises."""
        name = getattr(callback, "__qualname__", type(callback).__name__)
        place = f"{self.get_name()}: parameters, {name}"
        super().add_on_set_parameters_callback(
            guard(
                callback,
                place,
                lambda error: SetParametersResult(successful=False, reason=describe_error(error)),
            )
        )

    @on_ros_thread
    def destroy_timer(self, timer: Any) -> bool:
        """Destroy a timer."""
        self._live.discard(timer)
        return super().destroy_timer(timer)

    def destroy_node(self) -> None:
        """Destroy the node and everything it made."""
        self._live.clear()
        self._answers.close()
        super().destroy_node()
        release_state(self)

    @on_ros_thread
    def destroy_publisher(self, publisher: Any) -> bool:
        """Destroy a publisher."""
        self._events.forget(publisher)
        return super().destroy_publisher(publisher)

    @on_ros_thread
    def destroy_subscription(self, subscription: Any) -> bool:
        """Destroy a subscription."""
        self._live.discard(subscription)
        self._events.forget(subscription)
        return super().destroy_subscription(subscription)

    # -- what subclasses do --------------------------------------------------------------------

    def configure(self) -> None:
        """Load, build, warm up."""

    def activate(self) -> None:
        """Start accepting frames."""

    def deactivate(self) -> None:
        """Stop accepting frames."""

    def cleanup(self) -> None:
        """Release what `configure` acquired; also called when it failed halfway.

        Afterwards the publishers and timers that it made are destroyed.
        """

    def end(self) -> None:
        """Stop threads within a fraction of a second, as the process ends."""

    def restore_clocks(self) -> None:
        """Restore changed clocks at once, as the process ends.

        Called before `end`, not on the ROS thread, which may be busy.
        """

    # -- states --------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """``unconfigured``, ``inactive``, ``active`` or ``finalized``, or a transition's name."""
        return self._find_state()

    @property
    def is_unconfigured(self) -> bool:
        """Whether nothing is loaded."""
        return self.state_name == "unconfigured"

    @property
    def children(self) -> tuple[ManagedNode, ...]:
        """Nodes that this one leads."""
        return ()

    @property
    def in_transition(self) -> bool:
        """Whether the state of this node, or of one that leads it, is about to change."""
        return self._requested or self._transitions > 0

    @contextlib.contextmanager
    def silenced(self) -> Iterator[None]:
        """Leave it to the caller of a transition to report why it failed: `fault` says so.

        Otherwise a fault would be logged by the node, by the one that leads it and by the command.
        """
        self._is_silent = True
        try:
            yield
        finally:
            self._is_silent = False

    def autostart(self) -> bool:
        """Configure and activate, from any state; False when one of them failed."""
        with self.turn:  # no other transition comes between a look at the state and its change
            if self.state_name == "unconfigured" and self.trigger_configure() != SUCCESS:
                return False
            return self.state_name == "active" or (
                self.state_name == "inactive" and self.trigger_activate() == SUCCESS
            )

    def trigger_configure(self) -> TransitionCallbackReturn:
        """Configure on behalf of this process, whatever `lock_configuration` is."""
        return self._run(self._from_inside, super().trigger_configure)

    def trigger_activate(self) -> TransitionCallbackReturn:
        """Activate."""
        return self._run(super().trigger_activate)

    def trigger_deactivate(self) -> TransitionCallbackReturn:
        """Deactivate."""
        return self._run(super().trigger_deactivate)

    def trigger_cleanup(self) -> TransitionCallbackReturn:
        """Clean up on behalf of this process, whatever `lock_configuration` is."""
        return self._run(self._from_inside, super().trigger_cleanup)

    def trigger_shutdown(self) -> TransitionCallbackReturn:
        """Shut down, from any state; does nothing the second time (rclpy would raise)."""
        return self.shut_down()

    def shut_down(self, timeout_s: float = -1) -> TransitionCallbackReturn:
        """As `trigger_shutdown`, with a limit on waiting for other transitions of the process.

        `TimeoutError` when one has not ended after `timeout_s`; negative = no limit.
        """
        shut_down = super().trigger_shutdown
        return self._run(
            lambda: SUCCESS if self.state_name == "finalized" else shut_down(), timeout_s=timeout_s
        )

    def _run(self, transition: Callable[..., Any], *args: Any, timeout_s: float = -1) -> Any:
        """Run a transition when it is this node's turn."""
        spinner = self.spinner
        if spinner is not None and spinner.is_current_thread:
            # It may wait for this thread, and holds up frames if it does not.
            raise RuntimeError(f"{self.get_name()}: a transition cannot run on the ROS thread")
        if not self.turn.acquire(timeout=timeout_s):
            raise TimeoutError(f"another transition has not ended after {timeout_s} s")
        try:
            with self._changing():
                return transition(*args)
        finally:
            self.turn.release()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Count a transition of this node and of those it leads."""
        nodes = (self, *self.children)

        def count() -> None:
            for node in nodes:
                node._transitions += 1

        # There, so that no callback of these nodes is at work when the transition begins.
        self.call_ros(count)
        try:
            yield
        finally:
            for node in nodes:
                node._transitions -= 1

    def _accept(self) -> bool:
        """Whether a request to change the state is accepted; on the ROS thread."""
        if self.in_transition:
            self.get_logger().error(
                f"change_state is refused: another transition has not ended (the node is "
                f"{self.state_name}); fix: wait for the answer of the first"
            )
            return False
        self._requested = True
        return True

    def _change_state(self, change: Callable[..., Any], request: Any, response: Any) -> Any:
        """Pass on a request that the present state allows."""
        asked, there = request.transition, self._find_transitions()
        # As in rclpy the label goes first; rclpy would log an unknown one with its escape codes.
        if (asked.label in there.values()) if asked.label else (asked.id in there):
            return change(request, response)
        name = asked.label[:LONGEST_NAME] or asked.id
        self.get_logger().error(
            f"change_state is refused: no transition {name} leads out of {self.state_name}; "
            "fix: ask get_available_transitions"
        )
        response.success = False
        return response

    def _end_request(self) -> None:
        self._requested = False

    def _from_inside(
        self, transition: Callable[[], TransitionCallbackReturn]
    ) -> TransitionCallbackReturn:
        self._inside = True
        try:
            return transition()
        finally:
            self._inside = False

    def _refuses(self, what: str) -> bool:
        """Whether a request of another process to reconfigure is refused."""
        if self._inside or not self._locked or not self._was_configured:
            return False
        FAULTS.note_dropped(
            f"{self.get_name()}: life cycle",
            f"a request to {what}: lock_configuration is set, so this node is configured once; "
            "fix: restart it",
        )
        return True

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Configure; after an error, release what was acquired."""
        if self._refuses("configure"):
            return FAILURE
        for name in self._find_undeclared():
            self.get_logger().warning(f"there is no parameter {name}: its value is not used")
        self._permanent = {*self.publishers, *self.timers}
        done = self._attempt("configure", self.configure, self.cleanup)
        if done == SUCCESS:
            self._was_configured = True
        elif done == FAILURE:
            self._destroy_made()
        return done

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Activate; after an error, stop what was started."""
        return self._attempt("activate", self.activate, self.deactivate)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Deactivate."""
        return self._attempt("deactivate", self.deactivate)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Clean up."""
        if self._refuses("clean up"):
            return FAILURE
        done = self._attempt("clean up", self.cleanup)
        if done == SUCCESS:
            self._destroy_made()
        return done

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop, from any state."""
        done = self._attempt("shut down", self.end)
        self._destroy_made()
        # Finalized in either case, to which ErrorProcessing could add nothing.
        return SUCCESS if done == SUCCESS else FAILURE

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything after an unforeseen error; finalize the node when that fails."""
        released = [self._undo(undo, "an error") for undo in (self.deactivate, self.cleanup)]
        self._destroy_made()
        if all(released):
            self._was_configured = False  # as after a configuration that failed
            return SUCCESS
        self.fault += "; what it had acquired cannot be released; fix: restart the process"
        self.get_logger().error(f"finalized: {self.fault}")
        self._undo(self.end, "an error")
        return FAILURE

    @on_ros_thread
    def _destroy_made(self) -> None:
        """Destroy the publishers and timers that were made since `configure` was called."""
        if self._permanent is None:
            return
        for publisher in {*self.publishers} - self._permanent:
            self.destroy_publisher(publisher)
        for timer in {*self.timers} - self._permanent:
            self.destroy_timer(timer)

    def _attempt(
        self, what: str, action: Callable[[], None], undo: Callable[[], None] | None = None
    ) -> TransitionCallbackReturn:
        try:
            action()
        # Also sys.exit() in a library: the state machine would stay between two states for ever.
        except BaseException as error:
            self.fault = _reason(error)
            self.fault_parameter = getattr(error, "parameter", "")
            if not self._is_silent:
                self.get_logger().error(f"cannot {what}: {self.fault}")
            foreseen = isinstance(error, JetsonDnnRtError)
            if foreseen and (undo is None or self._undo(undo, f"a failed {what}")):
                return FAILURE
            return ERROR
        self.fault = ""
        return SUCCESS

    def _undo(self, undo: Callable[[], None], after: str) -> bool:
        """Undo what a transition did; False when it raises."""
        failed: list[BaseException] = []
        guard(undo, f"{self.get_name()}: {undo.__name__} after {after}", failed.append)()
        return not failed


def _reason(error: BaseException) -> str:
    """The text of errors raised on purpose; others with their type and place."""
    if isinstance(error, (JetsonDnnRtError, LedNodeError)):
        return safe_text(error, LONGEST_REASON)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = ""
    if trace is not None:
        code = trace.tb_frame.f_code
        place = f" ({code.co_filename}:{trace.tb_lineno} in {code.co_name})"
    return f"{type(error).__name__}: {safe_text(error, LONGEST_REASON)}{place}"


def overrides_to_parameters(values: dict[str, Any]) -> list[Any]:
    """Parameters for `Node(parameter_overrides=...)`; an empty list keeps its default."""
    from rclpy.parameter import Parameter

    return [
        Parameter(name, value=list(value) if isinstance(value, (tuple, list)) else value)
        for name, value in values.items()
        if not (isinstance(value, Sequence) and not value and not isinstance(value, str))
    ]
