# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Seeds to tune on and seeds to judge on, which must have none in common.

A benchmark that chooses anything by its own results (a setting, a variant, the clocks) chooses on
the tuning seeds and reports the test seeds. Both are in its result.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from benchmarks.harness.options import Options
from jetson_dnn_rt.errors import ConfigurationError

MOST_SEEDS = 10_000


class Seeds(NamedTuple):
    """The seeds of a run."""

    tuning: tuple[int, ...]
    test: tuple[int, ...]

    def describe(self) -> dict[str, Any]:
        """Entries of the result."""
        return {"tuning_seeds": _join(self.tuning), "test_seeds": _join(self.test)}


def add_seeds(add: Options, *, tuning: str, test: str) -> None:
    """Add ``--tuning-seeds`` and ``--test-seeds`` with these defaults."""
    add("--tuning-seeds", tuning, "what is tuned sees only these", metavar="A-B,C")
    add("--test-seeds", test, "judged on these, none of which is tuned on", metavar="A-B,C")


def read_seeds(args: argparse.Namespace) -> Seeds:
    """Read both; `ConfigurationError` if one is malformed or they have a seed in common."""
    seeds = Seeds(
        _parse(args.tuning_seeds, "--tuning-seeds"), _parse(args.test_seeds, "--test-seeds")
    )
    if common := sorted(set(seeds.tuning) & set(seeds.test)):
        raise ConfigurationError(
            f"--tuning-seeds and --test-seeds must have no seed in common: {common[0]}"
        )
    return seeds


def _parse(text: str, option: str) -> tuple[int, ...]:
    """Parse ``1-3,7`` to 1, 2, 3, 7, each once."""
    seeds: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigurationError(f"{option} must be like 0-9 or 1,4,7: {text!r}")
        low, high = int(first), int(last or first)
        if not 0 <= high - low < MOST_SEEDS:
            raise ConfigurationError(f"{option} must rise, and be at most {MOST_SEEDS}: {text!r}")
        seeds |= dict.fromkeys(range(low, high + 1))
    return tuple(seeds)


def _join(seeds: tuple[int, ...]) -> str:
    """Write seeds as `_parse` reads them."""
    parts: list[str] = []
    for first in seeds:
        if first - 1 in seeds:
            continue
        last = first
        while last + 1 in seeds:
            last += 1
        parts.append(str(first) if last == first else f"{first}-{last}")
    return ",".join(parts)
