"""How variants are built and measured, and what became of one."""

from __future__ import annotations

from dataclasses import dataclass

from jetson_dnn_rt.variants.measuring.measurement import Measurement

STATES = ("built", "present", "tuned", "refused", "failed")
BUILT, PRESENT, TUNED, REFUSED, FAILED = STATES


@dataclass(frozen=True)
class BuildSettings:
    """How variants are built and measured.

    Attributes
    ----------
    frames : str
        Where frames come from, see `jetson_dnn_rt.variants.measuring.sample_frames`.
    frame_count : int
        So many of them are read. Variants are compared on the last ones, which nothing is fitted
        to (`variants.measuring.sample_frames.count_held_out`).
    runs : int
        Timed runs of each variant.
    recover_steps : int
        Steps of recovery of decomposed networks; 0 = none.
    any_frames : bool
        What was measured on other frames is as good.
    again : bool
        Measure what is there anew.
    """

    frames: str = "synthetic"
    frame_count: int = 256
    runs: int = 100
    recover_steps: int = 0
    any_frames: bool = True
    again: bool = False


@dataclass(frozen=True)
class BuildReport:
    """What became of a variant.

    Attributes
    ----------
    task, variant : str
        Which.
    state : str
        ``built``, ``present`` (it was there), ``tuned`` (for another machine, where it is to be
        compiled and measured), ``refused`` (built, and of no use) or ``failed``.
    reason : str
        Why it was refused or failed, else empty.
    fresh : bool
        Whether it was built and measured now.
    measurement : Measurement or None
        The figures; None where it failed, or runs elsewhere.
    seconds : float
        That it took.
    """

    task: str
    variant: str
    state: str
    reason: str
    fresh: bool
    measurement: Measurement | None
    seconds: float
