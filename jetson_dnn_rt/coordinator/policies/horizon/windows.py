"""How much time the frames of a cohort have: from when to when, and who runs beside them.

On the hot path: plain tuples and loops, which for less than ten members are faster than arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

from jetson_dnn_rt.coordinator.cohort import Member

Window = tuple[float, float, float, float]
"""When the frame of a member may run, the present one or the next one expected, in nanoseconds
from now: its begin; its end, the deadline; when the present one is expected to be done (without
one, minus infinity); when the one after it is expected (without a present one, as its begin)."""

_NEVER = float("-inf")


def find_window(member: Member, now_ns: int, response: float) -> Window:
    """Window of a member.

    Parameters
    ----------
    member : Member
        Of the cohort.
    now_ns : int
        The time.
    response : float
        Share of the time to its deadline after which a frame is expected to be done.
    """
    last = member.last_release_ns
    if member.active:
        since = member.running_since_ns
        end = member.absolute_deadline_ns - now_ns
        return (
            0 if since is None else since - now_ns,
            end,
            response * end if end > 0 else 0.0,
            end if last is None else last + member.table.period_ns - now_ns,
        )
    begin = 0 if last is None else last + member.table.period_ns - now_ns
    if begin < 0:
        begin = 0
    return begin, begin + member.deadline_ns, _NEVER, begin


def count_others(
    index: int, windows: Sequence[Window], duty: Sequence[float], workers: int
) -> float:
    """Stages of others that are expected side by side with a frame, on average over its window.

    Derived, as a fluid: a present frame of another member is there until it is expected to be
    done, and its next ones for their share of the time from their expected release on.

    Parameters
    ----------
    index : int
        The member.
    windows : sequence of Window
        Of all members.
    duty : sequence of float
        Share of the time that each member runs.
    workers : int
        Stages side by side, at most.
    """
    begin, end, _, _ = windows[index]
    span = end - begin
    if span <= 0.0:
        span = 1.0
    busy = own = 0.0
    for other, (_, _, until, again) in enumerate(windows):
        there = until - begin
        if again < end:
            there = (there if there > 0.0 else 0.0) + duty[other] * (
                end - (again if again > begin else begin)
            )
        if there > 0.0:
            if there > span:
                there = span
            busy += there
            if other == index:
                own = there
    others = (busy - own) / span
    return others if others < workers - 1 else workers - 1.0


def count_beside(windows: Sequence[Window], begin: float) -> int:
    """Frames, itself included, that are there when one begins later."""
    return sum([w[2] > begin or w[0] <= begin < w[1] for w in windows])


def interpolate(interference: Sequence[float], others: float) -> float:
    """Interference with a mean number of others beside; ``interference[0]`` is without any."""
    low = int(others)
    slowed = interference[low]
    if others > low:
        slowed += (others - low) * (interference[low + 1] - slowed)
    return slowed
