# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The engine as a state machine for some thousand calls; test/campaigns/concurrency.py: more."""

from __future__ import annotations

import pytest
from engine_machine import OPERATIONS, EngineMachine, run_machine

from jetson_dnn_rt.scheduling.engine import Engine


def test_every_job_has_one_outcome_in_any_order_of_calls():
    """EDGES, campaign 7: one outcome, one thread, nobody waits for ever, the urgent first."""
    EngineMachine.transitions.clear()
    run_machine(seed=1, examples=60, steps=30)
    made = EngineMachine.transitions
    assert made.total() > 5000
    assert set(made) >= set(OPERATIONS) - {"cancel"}  # which needs many things to come together


def test_a_wake_up_that_is_lost_is_found(monkeypatch):
    """The machine sees an engine that forgets a job: it is no check that cannot fail."""
    monkeypatch.setattr(EngineMachine, "_make_engine", staticmethod(_ForgetfulEngine))
    with pytest.raises(AssertionError, match=r"wait for ever|neither here nor ended|never end"):
        run_machine(seed=1, examples=60, steps=30, shrink=False)


class _ForgetfulEngine:
    """Stands before an engine, which may be compiled; says now and then that nothing is ready."""

    def __init__(self, *options):
        self._engine, self._calls = Engine(*options), 0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def next(self, now_ns):
        self._calls += 1
        return None if self._calls % 50 == 49 else self._engine.next(now_ns)
