"""A second campaign against the bounds of a first one: exceedances counted and claimed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.lab.wcet.extreme_value import require_scipy
from jetson_dnn_rt.lab.wcet.statement import Campaign

REFUTED = 0.01
"""A bound is refuted where so many exceedances had this probability if it were true."""


@dataclass(frozen=True)
class Validation:
    """How one bound fared.

    Attributes
    ----------
    exceedance, upper_ns : float
        Of the bound.
    claimed : float
        Number of exceedances that it allows for: p times the number of times.
    counted : int
        Those that there were.
    p_value : float
        Probability of as many or more if the bound were true (binomial).
    """

    exceedance: float
    upper_ns: float
    claimed: float
    counted: int
    p_value: float

    @property
    def refuted(self) -> bool:
        """Whether the bound cannot be true for these times."""
        return self.p_value < REFUTED


def validate(campaign: Campaign, times_ns: npt.ArrayLike) -> list[Validation]:
    """Count what exceeds the bounds of a campaign; those that it did not give are left out.

    Parameters
    ----------
    campaign : Campaign
        The first one.
    times_ns : array of int or float [N]
        Of the second one, measured apart from it.

    Raises
    ------
    ValueError
        When there is no time.
    """
    times = np.asarray(times_ns, dtype=np.float64)
    if times.ndim != 1 or not len(times):
        raise ValueError("times_ns must be one row of at least one time")
    found = []
    for bound in campaign.bounds:
        if math.isnan(bound.upper_ns):
            continue
        counted = int(np.count_nonzero(times > bound.upper_ns))
        p_value = 1.0
        if counted:
            survival = require_scipy().special.bdtrc
            p_value = float(survival(counted - 1, len(times), bound.exceedance))
        claimed = bound.exceedance * len(times)
        found.append(Validation(bound.exceedance, bound.upper_ns, claimed, counted, p_value))
    return found
