"""A lifecycle node whose failures are said, and that can bring itself up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from jetson_dnn_rt.errors import JetsonDnnRtError

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE


class ManagedNode(LifecycleNode):
    """Base of the package's nodes.

    Subclasses define `configure`, `activate`, `deactivate`, `cleanup` and `end`; an error that
    they raise leaves the node in the state it came from, with the reason in the log and in
    `fault` (rclpy itself would swallow the exception).

    Parameters
    ----------
    name : str
        Of the node.
    options : dict
        Keyword arguments of `rclpy.node.Node`.
    """

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.fault = ""

    # -- what subclasses do --------------------------------------------------------------------

    def configure(self) -> None:
        """Load, build, warm up."""

    def activate(self) -> None:
        """Begin to take frames."""

    def deactivate(self) -> None:
        """Stop taking frames."""

    def cleanup(self) -> None:
        """Give everything back that `configure` took; called for a half-done one too."""

    def end(self) -> None:
        """The process ends: stop threads within a fraction of a second."""

    # -- states --------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """``unconfigured``, ``inactive``, ``active`` or ``finalized``, or a transition's name."""
        return str(self._state_machine.current_state[1])

    @property
    def is_unconfigured(self) -> bool:
        """Whether nothing was loaded yet."""
        return self.state_name == "unconfigured"

    def autostart(self) -> bool:
        """Configure and activate, from whatever state; False when one of them failed."""
        if self.state_name == "unconfigured" and self.trigger_configure() != SUCCESS:
            return False
        return self.state_name == "active" or (
            self.state_name == "inactive" and self.trigger_activate() == SUCCESS
        )

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Configure; on an error what was taken is given back."""
        return self._attempt("configure", self.configure, self.cleanup)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Activate; on an error what was begun is stopped."""
        return self._attempt("activate", self.activate, self.deactivate)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Deactivate."""
        return self._attempt("deactivate", self.deactivate)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Clean up."""
        return self._attempt("clean up", self.cleanup)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop, from any state."""
        return self._attempt("shut down", self.end)

    def _attempt(
        self, what: str, action: Callable[[], None], undo: Callable[[], None] | None = None
    ) -> TransitionCallbackReturn:
        try:
            action()
        except Exception as error:
            self.fault = _reason(error)
            self.get_logger().error(f"cannot {what}: {self.fault}")
            if undo is not None:
                undo()
            return FAILURE
        self.fault = ""
        return SUCCESS


def _reason(error: Exception) -> str:
    """The text of errors raised on purpose; others with their type and place."""
    if isinstance(error, JetsonDnnRtError):
        return str(error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = ""
    if trace is not None:
        code = trace.tb_frame.f_code
        place = f" ({code.co_filename}:{trace.tb_lineno} in {code.co_name})"
    return f"{type(error).__name__}: {error}{place}"


def overrides_to_parameters(values: dict[str, Any]) -> list[Any]:
    """Parameters for `Node(parameter_overrides=...)`; an empty list keeps its default."""
    from rclpy.parameter import Parameter

    return [
        Parameter(name, value=list(value) if isinstance(value, (tuple, list)) else value)
        for name, value in values.items()
        if not (isinstance(value, Sequence) and not value and not isinstance(value, str))
    ]
