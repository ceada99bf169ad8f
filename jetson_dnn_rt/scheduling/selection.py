# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Selectors choose the variant of the next stage; the engine calls them at every boundary."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from typing import ParamSpec, Protocol, TypeVar

from jetson_dnn_rt.safety.faults import FAULTS, safe_text
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import Outcome

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

FAILURES = 2  # a selector that raised this often is replaced


class Gate(enum.Enum):
    """A selector's answer about a job that has not begun."""

    OPEN = "open"  # the engine's own tests decide
    HELD = "held"  # it waits until the next boundary, unless nothing else could run
    CLOSED = "closed"  # it ends as ``skipped``; a probe runs nevertheless


class Selector(Protocol):
    """Chooses variants, notified of job events; must be quick, under the driver's lock.

    A variant that is withdrawn, or that cannot be entered at this stage, is not run even if
    chosen; see `TaskState.usable`.
    """

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """Return the variant for the stage ``job.next_stage``."""

    def allowed(self, state: TaskState, job: Job) -> Sequence[str]:
        """Return the variants that may still be chosen for the rest of the job.

        A job is hopeless only when none of them would finish in time.
        """

    def gate(self, state: TaskState, job: Job, now_ns: int) -> Gate:
        """Say whether a ready job that has not begun may begin; asked after `choose`."""

    def released(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A job was admitted at its release; it waits."""

    def started(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A stage of a job starts, in ``job.variant``."""

    def passed(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A stage of a job has finished, the last of ``job.stages``; called before `ended`."""

    def ended(self, state: TaskState, job: Job, outcome: Outcome, now_ns: int) -> None:
        """A job ended, perhaps without having been admitted."""


class StaticSelector:
    """The task's variant for the whole frame; base of selectors that ignore job events."""

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """Return the task's variant at the job's start, afterwards the job's own."""
        return state.parameters.variant if job.start_ns is None else job.variant

    def allowed(self, state: TaskState, job: Job) -> Sequence[str]:
        """Return only the choice for this stage."""
        return (self.choose(state, job, 0),)

    def gate(self, state: TaskState, job: Job, now_ns: int) -> Gate:
        """Leave it to the engine."""
        return Gate.OPEN

    def released(self, state: TaskState, job: Job, now_ns: int) -> None:
        """Ignored."""

    def started(self, state: TaskState, job: Job, now_ns: int) -> None:
        """Ignored."""

    def passed(self, state: TaskState, job: Job, now_ns: int) -> None:
        """Ignored."""

    def ended(self, state: TaskState, job: Job, outcome: Outcome, now_ns: int) -> None:
        """Ignored."""


class GuardedSelector:
    """Uses a selector, or a `StaticSelector` where it raises; permanently after `FAILURES` times.

    A failing selector must not break the engine, which calls it in the middle of its own calls.
    """

    def __init__(self, selector: Selector) -> None:
        self._name = type(selector).__name__
        self._static = StaticSelector()
        self._failures = 0
        self.failure = ""  # why the selector was replaced; empty while it is in use
        self._bind(selector)

    def _bind(self, selector: Selector) -> None:
        static, guard = self._static, self._guard
        self.choose = guard(selector.choose, static.choose)
        self.allowed = guard(selector.allowed, static.allowed)
        self.gate = guard(selector.gate, static.gate)
        self.released = guard(selector.released, static.released)
        self.started = guard(selector.started, static.started)
        self.passed = guard(selector.passed, static.passed)
        self.ended = guard(selector.ended, static.ended)

    def _guard(self, call: Callable[P, T], otherwise: Callable[P, T]) -> Callable[P, T]:
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return call(*args, **kwargs)
            except Exception as error:
                self._note(error)
            return otherwise(*args, **kwargs)

        return guarded

    def _note(self, error: Exception) -> None:
        FAULTS.note("selector of variants", error)
        self._failures += 1
        if self._failures == FAILURES:
            self.failure = (
                f"{self._name} raised {FAILURES} times, last {type(error).__name__}: "
                f"{safe_text(error)}"
            )
            self._bind(self._static)
            logger.error(
                "%s: it is set aside, and tasks run the variants that they are set to",
                self.failure,
            )
