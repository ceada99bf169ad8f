"""When the frames of a bag arrive: as they were recorded, faster or slower, or at a fixed rate.

A frame arrives when its message was logged. Clocks jump: a time that goes back, or ahead by more
than any camera pauses, is no pause of the camera; the frame then comes a period after the one
before. Such places are counted and said.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ConfigurationError

Integers = npt.NDArray[np.int64]

LONGEST_PAUSE_NS = 60_000_000_000
"""A longer step of the recorded times is a step of the clock."""


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Times of N frames.

    Attributes
    ----------
    times_ns : int64 [N]
        Never falling, the first is 0.
    period_ns : int
        Usual time between two of them, > 0.
    jumps : int
        Steps of the recorded times that were not believed.
    """

    times_ns: Integers
    period_ns: int
    jumps: int


def find_period_ns(recorded_ns: npt.ArrayLike) -> int:
    """Median step of recorded times [N], of the steps forward; 0 where there is none."""
    steps = np.diff(np.asarray(recorded_ns, np.int64))
    forward = steps[(steps > 0) & (steps <= LONGEST_PAUSE_NS)]
    return int(np.median(forward)) if len(forward) else 0


def plan_arrivals(
    recorded_ns: npt.ArrayLike, *, speed: float = 1.0, rate_hz: float = 0.0, period_ns: int = 0
) -> Arrivals:
    """Arrival times of recorded frames.

    Parameters
    ----------
    recorded_ns : array_like of int, [N]
        When the frames were logged, in their order.
    speed : float
        Factor on the speed of the recording, > 0; 2 = in half the time.
    rate_hz : float
        At this rate instead, evenly; 0 = as recorded.
    period_ns : int
        Taken where the recording says none: of a single frame, or of frames with one time.

    Raises
    ------
    ConfigurationError
        When `speed` or `rate_hz` is out of range, or there is no period at all.
    """
    if not speed > 0.0 or not rate_hz >= 0.0:
        raise ConfigurationError(f"speed must be > 0 and the rate >= 0 Hz: {speed:g}, {rate_hz:g}")
    recorded = np.asarray(recorded_ns, np.int64)
    if rate_hz:
        even: Integers = np.rint(np.arange(len(recorded)) * (1e9 / rate_hz)).astype(np.int64)
        return Arrivals(even, round(1e9 / rate_hz), 0)
    usual_ns = find_period_ns(recorded) or period_ns
    if usual_ns <= 0:
        raise ConfigurationError("the recorded times say no period of the frames: give --rate HZ")
    steps = np.diff(recorded, prepend=recorded[:1])
    jumped = (steps < 0) | (steps > LONGEST_PAUSE_NS)
    steps[jumped] = usual_ns
    times: Integers = np.rint(np.cumsum(steps) / speed).astype(np.int64)
    return Arrivals(times, max(1, round(usual_ns / speed)), int(jumped.sum()))
