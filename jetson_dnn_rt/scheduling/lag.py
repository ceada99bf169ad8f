"""Sub-deadlines and LAG of NeuOS (Bateni & Liu, USENIX ATC 2020, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def sub_deadlines_ns(deadline_ns: int, profile_ns: Sequence[int]) -> tuple[int, ...]:
    """Share a relative deadline out among stages: ``d_l = D * e_l / sum(e)``.

    Parameters
    ----------
    deadline_ns : int
        D, from release.
    profile_ns : sequence of int
        e_l, the profiled time of each stage, not all of them 0.

    Returns
    -------
    tuple of int
        d_l, rounded so that every prefix is rounded down and all of them add up to D.
    """
    total_ns = sum(profile_ns)
    if total_ns <= 0 or min(profile_ns) < 0:
        raise ValueError(f"profile_ns must be >= 0 and not all 0: {tuple(profile_ns)}")
    bounds = [0]
    passed_ns = 0
    for time_ns in profile_ns:
        passed_ns += time_ns
        bounds.append(deadline_ns * passed_ns // total_ns)
    return tuple(after - before for before, after in pairwise(bounds))


def lag_ns(sub_deadlines: Sequence[int], finished: int, elapsed_ns: int) -> int:
    """``LAG = sum(d_l - m_l)`` over the finished stages; negative = behind, positive = ahead.

    Parameters
    ----------
    sub_deadlines : sequence of int
        d_l of every stage, in nanoseconds.
    finished : int
        How many stages are done.
    elapsed_ns : int
        Sum of their m_l. Measured from boundary to boundary, as in the paper, that is the time
        since the release, and waiting counts.
    """
    return sum(sub_deadlines[:finished]) - elapsed_ns
