"""How much time the frames of a cohort have: from when to when, and who runs beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.coordinator.cohort import Member

Floats = npt.NDArray[np.float64]


class Window(NamedTuple):
    """When the frame of a member may run: the present one, or the next one expected.

    All in nanoseconds from now.

    Attributes
    ----------
    begin, end : int
        From when to when; the end is its deadline.
    until : float
        When the present one is expected to be done; without one, minus infinity.
    again : int
        When the one after it is expected; without a present one, the same as `begin`.
    """

    begin: int
    end: int
    until: float
    again: int


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
    last, period_ns = member.last_release_ns, member.table.period_ns
    if member.active:
        since = member.running_since_ns
        end = member.absolute_deadline_ns - now_ns
        return Window(
            0 if since is None else since - now_ns,
            end,
            response * end if end > 0 else 0.0,
            end if last is None else last + period_ns - now_ns,
        )
    begin = 0 if last is None else max(0, last + period_ns - now_ns)
    return Window(begin, begin + member.deadline_ns, float("-inf"), begin)


class Neighbours:
    """Estimates how much the others will slow a frame down until its deadline.

    Derived, as a fluid: a present frame of another member is there until it is expected to be
    done, and its next ones for their share of the time (`duty`) from their expected release on.
    The next stage of a frame meets those who run, or will run, when it begins.

    Parameters
    ----------
    duty : sequence of float
        Share of the time that each member runs.
    interference : sequence of float
        Slow-down with 1, 2, ... stages side by side, one for each member.
    """

    def __init__(self, duty: Sequence[float], interference: Sequence[float]) -> None:
        self._duty = np.asarray(duty, dtype=np.float64)
        self._interference = np.asarray(interference, dtype=np.float64)
        self._counts = np.arange(len(duty), dtype=np.float64)
        self._others = 1.0 - np.eye(len(duty))

    def slow_down(
        self,
        windows: Sequence[Window],
        asked: Sequence[int],
        beside: Sequence[int],
        next_share: Sequence[float],
    ) -> Floats:
        """Interference of some frames.

        Parameters
        ----------
        windows : sequence of Window
            Of all members.
        asked : sequence of int
            Whose frames.
        beside : sequence of int
            Of each of them: stages of others that run when its next stage begins.
        next_share : sequence of float
            Of each of them: share of its next stage in the rest of the frame.
        """
        table = np.array(windows, dtype=np.float64)
        until, again = table[:, 2], table[:, 3]
        own = table if len(asked) == len(windows) else table.take(asked, axis=0)
        begin, end = own[:, 0:1], own[:, 1:2]
        window = np.maximum(1.0, end - begin)
        there = np.maximum(0.0, end - np.maximum(again, begin))
        there *= self._duty
        there += np.maximum(0.0, until - begin)
        np.minimum(there, window, out=there)
        there *= self._others if len(asked) == len(windows) else self._others.take(asked, axis=0)
        at_once = there.sum(axis=1) / window[:, 0]
        mean = np.interp(at_once, self._counts, self._interference)
        known = self._interference.take(beside, mode="clip")
        return np.asarray(mean + np.asarray(next_share) * (known - mean))


def count_beside(windows: Sequence[Window], begin: int) -> int:
    """Frames, itself included, that are there when one begins later."""
    return sum([w.until > begin or w.begin <= begin < w.end for w in windows])
