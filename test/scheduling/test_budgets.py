import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.scheduling.task_state import BudgetEstimator


def test_empty_budget_is_optimistic():
    assert BudgetEstimator(0.99).budget_ns == 0


def test_budget_is_the_smallest_time_that_covers_the_quantile():
    estimator = BudgetEstimator(0.9)
    estimator.reset(range(1, 11))
    assert (estimator.budget_ns, estimator.median_ns) == (9, 5)


def test_reset_forgets():
    estimator = BudgetEstimator(0.99)
    estimator.reset([1000])
    estimator.reset([3, 4])
    assert (estimator.budget_ns, estimator.median_ns) == (4, 3)


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=100),
    st.integers(1, 20),
    st.sampled_from([0.5, 0.9, 0.99, 1.0]),
)
def test_equals_the_quantile_of_the_window(times, window, quantile):
    estimator = BudgetEstimator(quantile, window)
    for time_ns in times:
        estimator.observe(time_ns)
    recent = sorted(times[-window:])
    assert estimator.budget_ns == recent[math.ceil(quantile * len(recent)) - 1]
    assert estimator.median_ns == recent[(len(recent) - 1) // 2]


@pytest.mark.parametrize("quantile", [0.99, 1.0])
def test_full_window_with_equal_times(quantile):
    estimator = BudgetEstimator(quantile, 3)
    for time_ns in [7, 7, 7, 7, 1]:
        estimator.observe(time_ns)
    assert estimator.budget_ns == 7
