"""Sub-deadlines and LAG of NeuOS (Bateni & Liu, USENIX ATC 2020, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise


def sub_deadlines_ns(deadline_ns: int, profile_ns: Sequence[int]) -> tuple[int, ...]:
    """Divide a relative deadline among stages by their profiled times: ``d_l = D e_l / sum(e)``.

    Every prefix is rounded down; together they are exactly D. Not all times may be 0.
    """
    total_ns = sum(profile_ns)
    if total_ns <= 0 or min(profile_ns) < 0:
        raise ValueError(f"profile_ns must be >= 0 and not all 0: {tuple(profile_ns)}")
    bounds = [deadline_ns * passed // total_ns for passed in accumulate(profile_ns, initial=0)]
    return tuple(after - before for before, after in pairwise(bounds))


def lag_ns(sub_deadlines: Sequence[int], finished: int, elapsed_ns: int) -> int:
    """``LAG = sum(d_l - m_l)`` over the finished stages; negative = behind, positive = ahead.

    `elapsed_ns` is the sum of their times m_l. Measured from boundary to boundary, as in the
    paper, it is the time since the release, and waiting counts.
    """
    return sum(sub_deadlines[:finished]) - elapsed_ns
