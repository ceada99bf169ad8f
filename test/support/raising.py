# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Methods that raise now and then, seeded: for tests of what an exception leaves behind."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Any

import pytest

from jetson_dnn_rt.compiled import PURE, find_build


class InjectedError(Exception):
    """Raised on purpose, by a `Saboteur` only."""


class Saboteur:
    """Makes methods raise before or after their work, in a share of the calls, up to a limit.

    The same seed raises at the same calls.
    """

    def __init__(self, seed: int, share: float, limit: int) -> None:
        self._random = random.Random(seed)
        self._share, self.limit = share, limit
        self.raised: list[str] = []

    def spoil(self, subject: Any, names: Iterable[str]) -> None:
        """Let these methods of one object raise."""
        for name in names:
            setattr(subject, name, self._wrap(getattr(subject, name), name))

    def _wrap(self, method: Any, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            place = self._random.random()
            hit = len(self.raised) < self.limit and place < self._share
            if hit and place < self._share / 2:
                self._raise(name)
            result = method(*args, **options)
            if hit:
                self._raise(name)
            return result

        return call

    def _raise(self, name: str) -> None:
        self.raised.append(name)
        raise InjectedError(name)


class SpoiledEngine:
    """Stands before an engine, which may be compiled: nobody replaces a method of such a one."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def spoil_engine(engine: Any, saboteur: Saboteur) -> None:
    """Let an engine raise anywhere inside its calls: its driver's and its own."""
    if find_build().used:
        pytest.skip(f"methods of a compiled engine cannot be replaced: {PURE}=1 runs this")
    names = (
        "release next boundary fail _refusal _pass _form_batch _start _begin _make_ready "
        "_can_go_on _put_aside _take_spare _hold _put_back _stop_running _end_hopeless _end"
    )
    saboteur.spoil(engine, names.split())
    places = "expect forget await_place waited_ns wait_for_newer is_idle_until time_for start stop"
    saboteur.spoil(engine._places, places.split())
    saboteur.spoil(engine._queue, ("push", "pop", "put_back"))
    saboteur.spoil(engine._spare, ("push", "pop", "pop_overdue"))
    saboteur.spoil(engine._probes, ("allow", "begin", "end"))
    saboteur.spoil(engine._devices, ("room", "take", "give_back"))


class RaisingSelector:
    """A selector that raises in one of its methods, from a given call of it on."""

    def __init__(self, inner: Any, method: str, first: int = 0, times: int = 10**9) -> None:
        self._inner, self._method = inner, method
        self._first, self._last = first, first + times
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name != self._method:
            return method

        def call(*args: Any) -> Any:
            self.calls += 1
            if self._first < self.calls <= self._last:
                raise InjectedError(f"{name}, call {self.calls}")
            return method(*args)

        return call


class InterruptedWindow(deque[Any]):
    """A window of the last values whose `append` raises where `where` says."""

    where = ""

    def append(self, value: Any) -> None:
        if self.where == "before":
            raise InjectedError("before a value is in the window")
        super().append(value)
        if self.where:
            raise InjectedError("behind it")
