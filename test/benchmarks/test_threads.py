# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`threads: auto` is judged against the best fixed split, load by load."""

import benches
import pytest

from benchmarks.threads import judge


def test_auto_is_judged_by_the_medians():
    shares = {"1 x 2": [0.9, 0.2, 0.8], "2 x 1": [0.5, 0.6, 0.7], "auto": [0.77, 0.9, 0.1]}
    judged = judge(shares)
    assert judged["behind_best"] == pytest.approx(0.03)
    assert [(row["split"], row["met"]) for row in judged["rows"]] == [
        ("1 x 2", 0.8),
        ("2 x 1", 0.6),
        ("auto", 0.77),
    ]
    assert judge({"1 x 2": [0.8], "2 x 1": [0.6], "auto": [0.76]})["passed"] is False
    assert judge({"1 x 2": [0.8], "2 x 1": [0.6], "auto": [0.9]})["passed"] is True


@pytest.mark.nightly
def test_all_of_them_play():
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    _, result = benches.run("threads", "--loads 1 --rounds 1 --seconds 0.5")
    (load,) = result["loads"]
    assert [row["split"] for row in load["rows"]] == ["1 x 2", "2 x 1", "auto"]
    assert all(0.0 <= row["met"] <= 1.0 for row in load["rows"])
