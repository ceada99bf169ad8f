# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import io
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from timing_traces import read_made

from jetson_dnn_rt.lab.report.budgets import analyse_recording
from jetson_dnn_rt.lab.report.conditions import ALL_VARIANTS, find_shifts, pair_stages
from jetson_dnn_rt.lab.report.figures import (
    choose_stages,
    draw_budgets,
    draw_misses,
    draw_response,
    draw_tail,
    draw_variants,
    share_variants,
    survival,
)
from jetson_dnn_rt.lab.report.recording import split_response
from jetson_dnn_rt.lab.report.style import NARROW, WIDE
from jetson_dnn_rt.lab.wcet.samples import Sample
from jetson_dnn_rt.tasks import Outcome

pytest.importorskip("pyarrow")
image = pytest.importorskip("matplotlib.image")


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """With a bad spell, and another variant from the middle on."""
    changes = {"bad_from": 60, "bad_count": 20, "second_variant_from": 120}
    return read_made(tmp_path_factory.mktemp("trace"), count=240, **changes)


def test_drawings_are_the_same_again(recording):
    """Others are drawn for the page (test_page.py)."""
    task = recording.tasks["segmenter"]
    first, second = (draw_variants("variants", task, recording.span_ns) for _ in range(2))
    assert first == second
    for png, layout in ((first.wide, WIDE), (first.narrow, NARROW)):
        pixels = image.imread(io.BytesIO(png))
        assert pixels.shape[1] == 2 * layout.width_px
        assert (pixels[..., :3] < 0.9).any()


def test_nothing_is_drawn_where_nothing_is_to_be_seen(tmp_path):
    good = read_made(tmp_path, count=120)
    task = good.tasks["detector"]
    # The least deadlines are shown where there are some.
    budgets = draw_budgets("budgets", analyse_recording(good, {}))
    assert budgets.alt.startswith("with p99 budgets: fits; ")
    assert draw_misses("misses", task, good.span_ns) is None
    assert draw_variants("variants", task, good.span_ns) is None
    skipped = np.full(len(task), list(Outcome).index(Outcome.SKIPPED), np.int8)
    assert draw_response("response", replace(task, outcome=skipped)) is None
    # Equal times have no tail, but a picture.
    equal = np.full(30, 5_000_000, np.int64)
    sample = Sample((("task", "t"), ("variant", "v")), equal, np.arange(30), equal[:0], 0)
    assert draw_tail("tail", sample, None).alt.endswith("30 frames, highest seen 5.00 ms")


def test_response_and_its_parts(recording):
    task = recording.tasks["segmenter"]
    parts = split_response(task)
    measured = task.response_ns[task.finished & ~task.warm_up]
    assert parts[-1].response_ns == pytest.approx(measured.max())
    totals = [part.response_ns for part in parts]
    assert totals == sorted(totals)


def test_of_many_stages_the_longest_are_kept_in_their_order():
    stages = [
        Sample((("stage", str(i)),), np.array([time]), np.array([0]), np.array([]), 0)
        for i, time in enumerate((5, 9, 1, 7))
    ]
    assert [dict(stage.key)["stage"] for stage in choose_stages(stages, 2)] == ["1", "3"]


def test_conditions(recording, tmp_path):
    other = read_made(tmp_path, count=240, seed=1, slowdown=1.4, second_variant_from=120)
    shifts = find_shifts([recording, other])
    found = {(shift.task, shift.variant) for shift in shifts}
    variants = ("full@null", "tucker-0.50@null")
    assert found == set(product(("detector", "segmenter"), variants))
    of_tucker = [shift for shift in shifts if shift.variant == "tucker-0.50@null"]
    assert [shift.ratio("p50") for shift in of_tucker] == pytest.approx([1.4, 1.4], rel=0.1)
    assert [shift.comparison.worse for shift in of_tucker if shift.comparison] == [True, True]
    pairs = pair_stages(recording, other, of_tucker[0].before)
    assert [before.key for before, _ in pairs] == [after.key for _, after in pairs]
    assert len(pairs) == 4


def test_mixed_variants_are_compared_as_a_whole(recording, tmp_path):
    only_full = read_made(tmp_path, count=200)
    half = replace(recording, samples=[s for s in recording.samples if "tucker" in s.title])
    shifts = find_shifts([half, only_full])
    assert {shift.variant for shift in shifts} == {ALL_VARIANTS}


def test_survival_is_the_share_that_is_at_least_as_long():
    ordered = np.arange(1, 10_001)
    times, shares = survival(ordered, 500)
    assert len(times) <= 500
    assert (times[0], shares[0]) == (1, 1.0)
    assert times[-1] == 10_000
    assert shares[-1] == pytest.approx(1e-4)
    for time, share in zip(times, shares, strict=True):
        assert share == pytest.approx(np.mean(ordered >= time))


def test_shares_of_variants_add_up(recording):
    task = recording.tasks["detector"]
    names, edges_s, shares = share_variants(task, 12, recording.span_ns)
    assert set(names) == {"full@null", "tucker-0.50@null"}
    assert len(edges_s) == 13
    assert np.nansum(shares, axis=0)[~np.isnan(shares[0])] == pytest.approx(1.0)
    first, last = shares[names.index("full@null")][[0, -1]]
    assert (first, last) == (1.0, 0.0)
    # Rarer ones share a name.
    names, _, shares = share_variants(task, 4, recording.span_ns, most=1)
    assert names[1] == "1 other"
    assert np.nansum(shares, axis=0) == pytest.approx(1.0)
