# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Contests of one scenario: who is best among all that keep the same accuracy, or energy.

In each, only points count that keep a floor of accuracy, or a budget of energy. Among those,
misses come first, where shares within `TOLERANCE` of the fewest are equal; then the least energy
wins, or the highest accuracy.

A policy is on the front of a contest if one of its points has such few misses and none of another
policy beats it: no more misses and no more energy (no less accuracy), one of the two better. So
neither a cheap point that misses many frames nor an accurate one that costs more is on the front
just because it is extreme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jetson_dnn_rt.lab.simulate.hindsight import TOLERANCE

FLOORS = (0.90, 0.95, 0.98, 0.99)
"""Least mean accuracy of the met frames."""
BUDGETS = (0.5, 0.75, 1.0)
"""Most energy by met frame, relative to the best static choice with the full networks."""
AS_GOOD = 0.05
"""Share of energy, or of lost accuracy, by which a static choice may be worse yet as good."""

OURS = "horizon"
POLICY, REFERENCE, DESK, HINDSIGHT = "policy", "reference", "desk static", "best static"
"""Groups of points: only policies compete; the others are what they are compared with."""

Point = Mapping[str, Any]
"""``group``, ``name``, ``setting``, ``miss_ratio``, ``energy_j`` (by met frame), ``accuracy``."""


def hold_contests(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Hold all contests of a scenario.

    Each has `kind`, `limit`, the points of the `winner`, of `ours`, of the static choices, whether
    ours is `on_front`, who keeps it from there, and whether no coordinator `is_needed`.
    """
    contests = [_hold("accuracy", floor, points) for floor in FLOORS]
    full = [p for p in points if p["group"] == HINDSIGHT and p["accuracy"] == 1.0]
    if full:
        unit_j = _best(full, "accuracy")["energy_j"]
        contests += [
            {**_hold("energy", share * unit_j, points), "share": share} for share in BUDGETS
        ]
    return [contest for contest in contests if contest["winner"] is not None]


def _hold(kind: str, limit: float, points: Sequence[Point]) -> dict[str, Any]:
    able = [p for p in points if p["accuracy"] is not None and _keeps(p, kind, limit)]
    rivals = [p for p in able if p["group"] == POLICY]
    contest: dict[str, Any] = {"kind": kind, "limit": limit, "winner": None}
    if not rivals:
        return contest
    fewest = min(p["miss_ratio"] for p in rivals)
    near = [p for p in rivals if p["miss_ratio"] <= fewest + TOLERANCE]
    ours = [p for p in near if p["name"] == OURS]
    others = [p for p in rivals if p["name"] != OURS]
    beaten_by = [{p["name"] for p in others if beats(p, mine, kind)} for mine in ours]
    contest["winner"] = winner = _best(rivals, kind)
    own = [p for p in rivals if p["name"] == OURS]
    contest["ours"] = _best(own, kind) if own else None
    contest["on_front"] = any(not names for names in beaten_by)
    contest["beaten_by"] = sorted(set.intersection(*beaten_by) if beaten_by else {winner["name"]})
    for group in (DESK, HINDSIGHT):
        static = [p for p in able if p["group"] == group]
        contest[group] = found = _best(static, kind) if static else None
        contest[f"{group} is as good"] = found is not None and _as_good(found, winner, kind)
    return contest


def _keeps(point: Point, kind: str, limit: float) -> bool:
    if kind == "accuracy":
        return bool(point["accuracy"] >= limit - 1e-9)
    return bool(point["energy_j"] <= limit * (1.0 + 1e-9))


def _cost(point: Point, kind: str) -> float:
    """What is compared among points with few misses; less is better."""
    return float(point["energy_j"] if kind == "accuracy" else -point["accuracy"])


def _best(points: Sequence[Point], kind: str) -> Point:
    fewest = min(p["miss_ratio"] for p in points)
    near = [p for p in points if p["miss_ratio"] <= fewest + TOLERANCE]
    return min(near, key=lambda p: (_cost(p, kind), p["miss_ratio"], p["name"]))


def beats(one: Point, other: Point, kind: str) -> bool:
    """Whether one point is at least as good in misses and cost, and better in one of them."""
    first = one["miss_ratio"], _cost(one, kind)
    second = other["miss_ratio"], _cost(other, kind)
    return first != second and first[0] <= second[0] and first[1] <= second[1]


def _as_good(static: Point, winner: Point, kind: str) -> bool:
    if static["miss_ratio"] > winner["miss_ratio"] + TOLERANCE:
        return False
    if kind == "accuracy":
        return bool(static["energy_j"] <= winner["energy_j"] * (1.0 + AS_GOOD))
    return bool(static["accuracy"] >= winner["accuracy"] - AS_GOOD * (1.0 - winner["accuracy"]))


def write_sentence(contests: Sequence[Mapping[str, Any]]) -> str:
    """Say who wins, where ours is not on the front, and whether a coordinator is needed."""
    wins: dict[str, int] = {}
    for contest in contests:
        name = contest["winner"]["name"]
        wins[name] = wins.get(name, 0) + 1
    order = sorted(wins, key=lambda name: (-wins[name], name))
    parts = [", ".join(f"`{name}` wins {wins[name]}" for name in order)]
    parts[0] += f" of {len(contests)} contests"
    missing = [contest for contest in contests if not contest["on_front"]]
    if missing:
        names = sorted({name for contest in missing for name in contest["beaten_by"]})
        where = ", ".join(describe(contest) for contest in missing)
        parts.append(f"`{OURS}` is not on the front at {where} ({', '.join(names)})")
    for group, text in (
        (HINDSIGHT, "one static choice with hindsight"),
        (DESK, "the static choice made at the desk"),
    ):
        as_good = [contest for contest in contests if contest[f"{group} is as good"]]
        if len(as_good) == len(contests):
            parts.append(f"{text} is as good everywhere")
        elif as_good:
            where = ", ".join(describe(contest) for contest in as_good)
            parts.append(f"{text} is as good at {where}")
        else:
            parts.append(f"{text} is as good nowhere")
    needed = not any(contest[f"{DESK} is as good"] for contest in contests)
    verdict = "a coordinator is needed" if needed else "a coordinator is needed in part"
    if all(contest[f"{DESK} is as good"] for contest in contests):
        verdict = "no coordinator is needed"
    return "; ".join([*parts, verdict]) + "."


def describe(contest: Mapping[str, Any]) -> str:
    """Name of a contest."""
    if contest["kind"] == "accuracy":
        return f"accuracy {contest['limit']:.2f}"
    return f"energy {contest['share']:.0%}"
