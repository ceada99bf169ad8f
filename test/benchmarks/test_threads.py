# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`threads: auto` is judged against every fixed split, load by load and round by round."""

import benches
import pytest

from benchmarks.harness.tables import UNDECIDED
from benchmarks.threads import judge, rejudge


def test_the_rows_have_medians():
    shares = {"1 x 2": [0.9, 0.2, 0.8], "2 x 1": [0.5, 0.6, 0.7], "auto": [0.77, 0.9, 0.1]}
    judged = judge(shares)
    assert judged["behind_best"] == pytest.approx(0.03)
    assert [(row["split"], row["met"]) for row in judged["rows"]] == [
        ("1 x 2", 0.8),
        ("2 x 1", 0.6),
        ("auto", 0.77),
    ]
    assert judged["passed"] == UNDECIDED  # three rounds


@pytest.mark.parametrize(
    ("auto", "passed"), [(0.9, True), (0.795, True), (0.79, True), (0.785, False), (0.6, False)]
)
def test_auto_is_judged_against_every_split(auto, passed):
    shares = {"1 x 2": [0.8] * 10, "2 x 1": [0.6] * 10, "auto": [auto] * 10}
    judged = judge(shares)
    assert judged["passed"] is passed
    assert rejudge({"loads": [judged]}) is passed
    assert judged["against"]["2 x 1"]["median"] == pytest.approx(auto - 0.6)


def test_rounds_are_held_against_their_own():
    share = [0.9, 0.5, 0.7, 0.6, 0.8, 0.4, 0.95, 0.55, 0.65, 0.75]
    better = [value + 0.02 for value in share]
    assert judge({"1 x 2": share, "auto": better})["passed"] is True
    assert judge({"1 x 2": better, "auto": share})["passed"] is False
    assert judge({"1 x 2": better[1:] + better[:1], "auto": share})["passed"] == UNDECIDED


@pytest.mark.nightly
def test_all_of_them_play():
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    _, result = benches.run("threads", "--loads 1 --rounds 1 --seconds 0.5")
    (load,) = result["loads"]
    assert [row["split"] for row in load["rows"]] == ["1 x 2", "2 x 1", "auto"]
    assert all(0.0 <= row["met"] <= 1.0 for row in load["rows"])
