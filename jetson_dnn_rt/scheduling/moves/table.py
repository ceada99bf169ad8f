# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The table of moves: each proposes plans one step away from the one that is followed.

A new one is a file beside these, with one function, and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jetson_dnn_rt.scheduling.model import Machine, ModelJob, Plan
from jetson_dnn_rt.scheduling.moves.ahead import prepare_ahead
from jetson_dnn_rt.scheduling.moves.narrow import run_narrow
from jetson_dnn_rt.scheduling.moves.narrow_order import run_narrow_after
from jetson_dnn_rt.scheduling.moves.order import go_first
from jetson_dnn_rt.scheduling.moves.skip import skip

Move = Callable[[list[ModelJob], Plan, Machine], list[Plan]]
"""Proposes plans in place of one for frames that wait or run, the most urgent first."""

MOVES: Mapping[str, Move] = {
    "narrow": run_narrow,
    "skip": skip,
    "order": go_first,
    "ahead": prepare_ahead,
    "narrow-order": run_narrow_after,
}
"""In the order in which they are tried."""
