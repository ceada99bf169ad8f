"""Plans for the rest of a frame: what is kept, and how long it takes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from cohorts import MS, make_clock_table, make_table
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_tables import tables

from jetson_dnn_rt.coordinator.policies.horizon.frontier import build_rests, pareto, tail_quantile
from jetson_dnn_rt.coordinator.tables.tables import TaskTable


@settings(deadline=None, max_examples=40)
@given(tables())
def test_no_plan_beats_those_kept(table: TaskTable) -> None:
    clocks = make_clock_table()
    for stage, rest in enumerate(build_rests(table, clocks, 0.999, 0.8)):
        stages = np.arange(stage, len(table.stages))
        for plan in product(range(2), repeat=len(stages)):
            loss = table.loss[list(plan), stages].sum()
            time = table.median_ns[list(plan), stages].sum()
            times = table.median_ns[rest.plans, stages].sum(axis=1)
            # Whole nanoseconds: medians of scaled frames are rounded.
            assert ((rest.loss <= loss + 1e-12) & (times <= time + len(stages))).any()


@settings(deadline=None, max_examples=40)
@given(tables())
def test_every_variant_throughout_is_a_plan(table: TaskTable) -> None:
    for rest in build_rests(table, make_clock_table(), 0.999, 0.8):
        uniform = {tuple(plan) for plan in rest.plans if len(set(plan)) == 1}
        assert len(uniform) == len(table.variants)


@settings(deadline=None, max_examples=40)
@given(tables())
def test_a_way_home_never_takes_longer_than_the_plan(table: TaskTable) -> None:
    for rest in build_rests(table, make_clock_table(), 0.999, 0.8):
        assert (rest.safe_ns <= rest.whole_ns + 1.0).all()
        assert (rest.usual_ns <= rest.whole_ns + 1.0).all()
        assert (rest.need_ns() <= rest.need_ns(1.2)).all()


def test_quantile_is_of_the_sum() -> None:
    # Two stages of which one is slow whenever the other is fast: the frame always takes 3 ms.
    table = make_table(times_ms=[[1.0, 1.0]], frames=[1.0] * 100)
    table.times_ns[0, 0] = np.where(np.arange(100) % 2, 1 * MS, 2 * MS)
    table.times_ns[0, 1] = 3 * MS - table.times_ns[0, 0]
    (whole, last) = build_rests(table, make_clock_table(), 0.99, 0.5)
    assert whole.whole_ns[0, -1] == pytest.approx(3 * MS)
    assert last.whole_ns[0, -1] == pytest.approx(2 * MS, rel=0.2)


def test_stages_that_are_accurate_come_first_among_equals() -> None:
    table = make_table(
        times_ms=[[2.0, 2.0], [1.0, 1.0]], loss=[[0.0, 0.0], [0.01, 0.01]], frames=[1.0]
    )
    rest = build_rests(table, make_clock_table(), 0.9, 0.5)[0]
    assert [0, 1] in rest.plans.tolist()
    assert [1, 0] not in rest.plans.tolist()


def test_energy_is_what_comes_on_top_of_the_idle_board() -> None:
    clocks = make_clock_table(idle_w=[1.0, 1.5, 3.0])
    table = make_table(times_ms=[[2.0, 2.0]], powers_w=(2.0, 6.0, 20.0))
    rest = build_rests(table, clocks, 0.9, 0.5)[0]
    # 4 ms at the fastest clocks, four times that at the slowest.
    assert rest.energy_j[0].tolist() == pytest.approx([0.016, 0.04, 0.076])


@pytest.mark.parametrize("count", [8, 64, 256, 2000])
@pytest.mark.parametrize("draw", ["normal", "exponential", "uniform"])
def test_tail_is_rarely_exceeded(count: int, draw: str) -> None:
    generator = np.random.default_rng(count)

    def sample(size: tuple[int, ...]) -> np.ndarray:
        if draw == "normal":
            return generator.normal(100.0, 3.0, size)
        return 100.0 + 10.0 * getattr(generator, draw)(size=size)

    budgets = tail_quantile(sample((400, count)), 0.99)
    held_out = sample((20_000,))
    exceeded = (held_out[:, None] > budgets).mean()
    # Held out samples scatter too; of 8 samples no more can be asked than being not far off.
    assert exceeded <= (0.03 if count == 8 else 0.012)


def test_tail_of_many_samples_is_the_empirical_quantile() -> None:
    samples = np.arange(1.0, 10_001.0)
    assert tail_quantile(samples, 0.99) == 9_900.0


def test_tail_of_a_few_samples_is_widened() -> None:
    assert tail_quantile(np.array([10.0]), 0.999) == 20.0
    assert tail_quantile(np.array([8.0, 9.0, 10.0, 7.0]), 0.999) == 12.5


@settings(deadline=None)
@given(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=300), st.floats(0.5, 0.998))
def test_tail_rises_with_the_confidence(samples: list[float], share: float) -> None:
    times = np.array(samples)
    low, high = tail_quantile(times, share), tail_quantile(times, 0.999)
    assert high >= low - 1e-9
    assert low >= np.quantile(times, share, method="inverted_cdf") - 1e-9


def test_pareto_keeps_what_is_new() -> None:
    kept = pareto(np.array([1.0, 2.0, 3.0, 4.0]), np.array([3.0, 3.0, 1.0, 2.0]))
    assert kept.tolist() == [True, False, True, False]
