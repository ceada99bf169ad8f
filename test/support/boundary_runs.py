# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Runs attacks by ways into the package, and their controls."""

from __future__ import annotations

import importlib
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from attack_arena import ATTACKS, Arena, Attack, Hostile, Listener, Verdict, attempt
from boundary_ways import WAYS, Way
from confined import Confinement

for _name in ("models", "recordings", "texts", "traces", "libraries", "folders"):
    importlib.import_module(f"attacks_on_{_name}")  # registers its attacks

CONTROL = "without care"
"""Name of the way by which a control reads what was laid."""


@dataclass(frozen=True)
class Run:
    """An attack by one way, and what came of it."""

    attack: Attack
    way: str
    verdict: Verdict | None
    """None where this machine cannot lay it."""

    @property
    def name(self) -> str:
        """What repeats it, with the seed."""
        return f"{self.attack.kind}: {self.attack.name}, by {self.way}"


class Boundary:
    """The unprivileged server and the port of this machine that attacks reach for."""

    def __init__(self, confinement: Confinement, listener: Listener) -> None:
        self.confinement, self._listener = confinement, listener

    def run(self, one: Attack, way: Way | None, seed: int) -> Run:
        """Run an attack by a way; None: its control."""
        with self._lay(one, seed) as (arena, hostile):
            if hostile is None or (way is None and not hostile.control):
                return Run(one, CONTROL if way is None else way.entry, None)
            command: list[str] = []
            if way is None:
                name, program = CONTROL, hostile.control
            elif way.words:
                name, program = way.entry, ""
                command = way.make_command(arena, hostile.given)
            else:
                name, program = way.entry, way.make_program(arena, hostile.given)
            arena.give_away()
            verdict = attempt(
                self.confinement, self._listener, arena, hostile, program, command=command
            )
            return Run(one, name, verdict)

    @contextmanager
    def _lay(self, one: Attack, seed: int) -> Iterator[tuple[Arena, Hostile | None]]:
        rng = random.Random(f"{seed} {one.kind} {one.name}")
        # Not pytest's folder, which belongs to its user alone.
        with tempfile.TemporaryDirectory(prefix="jetson_dnn_rt-boundary-") as folder:
            arena = Arena(Path(folder), self.confinement.user, rng, self._listener.port)
            hostile = one.lay(arena)
            if hostile is not None and hostile.needs_root and os.geteuid():
                hostile = None
            yield arena, hostile


@contextmanager
def open_boundary() -> Iterator[Boundary]:
    """Start what attacks need."""
    with Confinement() as confinement, Listener() as listener:
        yield Boundary(confinement, listener)


def list_runs(*, every: bool) -> list[tuple[Attack, Way]]:
    """Each attack by each way of its kind, or every attack and every way once."""
    ways: dict[str, list[Way]] = {}
    for way in WAYS:
        ways.setdefault(way.kind, []).append(way)
    pairs: list[tuple[Attack, Way]] = []
    for kind, some in ways.items():
        attacks = [one for one in ATTACKS if one.kind == kind]
        if every:
            pairs += [(one, way) for one in attacks for way in some]
            continue
        quick = [way for way in some if not way.slow]
        attacks = [one for one in attacks if not one.slow]
        if not attacks or not quick:
            continue
        # All ways in turn, until every attack and every way had one.
        pairs += [
            (attacks[number % len(attacks)], quick[number % len(quick)])
            for number in range(max(len(attacks), len(quick)))
        ]
    return pairs
