"""Whether long times come singly or in bursts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.lab.wcet.extreme_value import Floats, require_scipy


def estimate_extremal_index(positions: npt.NDArray[np.int64]) -> float:
    """Extremal index by the times between exceedances, which needs no choice of a run length.

    Ferro & Segers 2003, Journal of the Royal Statistical Society B 65, equations 5 and 6.

    Parameters
    ----------
    positions : int64 [K]
        Ascending places of the exceedances in the series.

    Returns
    -------
    float
        In (0, 1]; 1 = singly, 1 / it = mean number in a cluster. NaN with less than two.
    """
    if len(positions) < 2:
        return float("nan")
    return float(_estimate(np.diff(positions).astype(float)[np.newaxis])[0])


def _estimate(gaps: Floats) -> Floats:
    count = gaps.shape[1]
    longest = gaps.max(axis=1)
    near = 2.0 * gaps.sum(axis=1) ** 2 / (count * (gaps**2).sum(axis=1))
    square = np.maximum(((gaps - 1.0) * (gaps - 2.0)).sum(axis=1), 1e-300)
    far = 2.0 * (gaps - 1.0).sum(axis=1) ** 2 / (count * square)
    return np.asarray(np.minimum(1.0, np.where(longest <= 2.0, near, far)))


def check_clusters(positions: npt.NDArray[np.int64], count: int) -> tuple[float, float]:
    """Test whether exceedances follow each other sooner than independent ones would.

    Between independent exceedances of probability q the times are geometric, so the number of
    those that are at most w long is binomial; w is a quarter of the mean time.

    Parameters
    ----------
    positions : int64 [K]
        Ascending places of the exceedances.
    count : int
        Length of the series.

    Returns
    -------
    index, p_value : float
        The extremal index, and the one-sided p value of the count.
    """
    index = estimate_extremal_index(positions)
    if len(positions) < 10:
        return index, 1.0
    share = len(positions) / count
    window = max(1, round(0.25 / share))
    gaps = np.diff(positions)
    near = int(np.count_nonzero(gaps <= window))
    expected = 1.0 - (1.0 - share) ** window
    survival = require_scipy().special.bdtrc
    return index, float(survival(near - 1, len(gaps), expected)) if near else 1.0


def longest_run(above: npt.NDArray[np.bool_]) -> int:
    """Greatest number of consecutive True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], above, [False]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max()) if len(edges) else 0
