"""A lifecycle node that reports its failures, and can start itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from jetson_dnn_rt.config.declaration import Values
from jetson_dnn_rt.config.process import CommonConfig
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.nodes.process.distribution import (
    PublisherEventCallbacks,
    SubscriptionEventCallbacks,
    UnsupportedEventTypeError,
    find_state,
    given_parameters,
)
from jetson_dnn_rt.nodes.process.guard import guard, guard_client, guard_service
from jetson_dnn_rt.nodes.process.parameters import ParameterSet, gate_of
from jetson_dnn_rt.nodes.process.qos import EventPoller, make_events
from jetson_dnn_rt.safety.faults import FAULTS, describe_error, safe_text

EVENT_PERIOD_S = 0.5

LONGEST_REASON = 2000
"""Characters of the reason why a transition failed, which is repeated in diagnostics."""

SHARED_PARAMETERS = ("autostart", "use_sim_time", "start_type_description_service")
"""Parameters that a configuration may set for all nodes, though not every node has them."""

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE


class ManagedNode(LifecycleNode):
    """Base of the package's nodes.

    Subclasses override `configure`, `activate`, `deactivate`, `cleanup` and `end`; an error that
    they raise leaves the node in the state it came from, with the reason in the log and in `fault`
    (rclpy itself would swallow the exception).

    rclpy writes `qos_overrides` into the profile that it is given, so each publisher and
    subscription gets a copy.

    Every callback is guarded (`nodes.process.guard`): of subscriptions, timers, services, QoS
    events, parameter checks and the futures of clients, including those of rclpy's own services.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self._events = EventPoller(self)  # Node's constructor already creates publishers
        self._live: set[Any] = set()
        """Timers and subscriptions that are not destroyed."""
        super().__init__(name, **options)
        self._find_state = find_state(self)
        # Services of the life cycle, which rclpy makes without `create_service`.
        for service in self.services:
            if not hasattr(service.callback, "__wrapped__"):
                service.callback = self._guard_service(
                    service.callback, service.srv_type, service.srv_name
                )
        self.fault = ""
        self._locked = ParameterSet(self, CommonConfig).value.lock_configuration
        gate_of(self).locked = self._locked
        self._was_configured = self._inside = False
        self._permanent: set[Any] = set()  # publishers and timers that `configure` did not make
        self.create_timer(EVENT_PERIOD_S, self._events.poll)

    def declare(self, kind: type[Values], **options: Any) -> ParameterSet[Values]:
        """Declare parameters; what is not dynamic is fixed while the node is configured."""
        return ParameterSet(self, kind, is_fixed=lambda: not self.is_unconfigured, **options)

    # -- guarded callbacks and polled events ---------------------------------------------------

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
        return self._create_polled(
            PublisherEventCallbacks, create, msg_type, topic, copy(qos_profile), **options
        )

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

        def call_live(message: Any) -> None:
            if subscription in self._live:
                guarded(message)

        none = SubscriptionEventCallbacks(use_default_callbacks=False)
        options.setdefault("event_callbacks", none)
        create = super().create_subscription
        own = copy(qos_profile)
        subscription = self._create_polled(
            SubscriptionEventCallbacks, create, msg_type, topic, call_live, own, **options
        )
        self._live.add(subscription)
        return subscription

    def _create_polled(
        self, events: type[Any], create: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        """Create a publisher or subscription, without events where the middleware lacks them."""
        try:
            entity = create(*args, **options)
        except UnsupportedEventTypeError:
            options["event_callbacks"] = events(use_default_callbacks=False)
            entity = create(*args, **options)
        return self._events.watch(entity)

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

    def destroy_timer(self, timer: Any) -> bool:
        """Destroy a timer."""
        self._live.discard(timer)
        return super().destroy_timer(timer)

    def destroy_node(self) -> None:
        """Destroy the node and everything it made."""
        self._live.clear()
        super().destroy_node()

    def destroy_publisher(self, publisher: Any) -> bool:
        """Destroy a publisher."""
        self._events.forget(publisher)
        return super().destroy_publisher(publisher)

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

    def autostart(self) -> bool:
        """Configure and activate, from any state; False when one of them failed."""
        if self.state_name == "unconfigured" and self.trigger_configure() != SUCCESS:
            return False
        return self.state_name == "active" or (
            self.state_name == "inactive" and self.trigger_activate() == SUCCESS
        )

    def trigger_shutdown(self) -> TransitionCallbackReturn:
        """Shut down, from any state; does nothing the second time (rclpy would raise)."""
        return SUCCESS if self.state_name == "finalized" else super().trigger_shutdown()

    def trigger_configure(self) -> TransitionCallbackReturn:
        """Configure on behalf of this process, whatever `lock_configuration` is."""
        return self._from_inside(super().trigger_configure)

    def trigger_cleanup(self) -> TransitionCallbackReturn:
        """Clean up on behalf of this process, whatever `lock_configuration` is."""
        return self._from_inside(super().trigger_cleanup)

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
        # rclpy silently drops values of the configuration that name no parameter.
        for name in given_parameters(self):
            shared = name in SHARED_PARAMETERS or name.startswith("qos_overrides.")
            if not shared and not self.has_parameter(name):
                self.get_logger().warning(f"there is no parameter {name}: its value is not used")
        self._permanent = {*self.publishers, *self.timers}
        done = self._attempt("configure", self.configure, self.cleanup)
        if done == SUCCESS:
            self._was_configured = True
        else:
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
        if self._was_configured:
            self._destroy_made()
        return done

    def _destroy_made(self) -> None:
        """Destroy the publishers and timers that were made since `configure` was called."""
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
            self.get_logger().error(f"cannot {what}: {self.fault}")
            if undo is not None:
                guard(undo, f"{self.get_name()}: {undo.__name__} after a failed {what}")()
            return FAILURE
        self.fault = ""
        return SUCCESS


def _reason(error: BaseException) -> str:
    """The text of errors raised on purpose; others with their type and place."""
    if isinstance(error, JetsonDnnRtError):
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
