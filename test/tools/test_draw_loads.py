# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Curves over the load: all panels and sides, and where the usual node is as good."""

import pytest

pytest.importorskip("matplotlib")

import draw_loads


def make_cell(factor, load, ours, naive):
    sides = {"ours": {"met_ratio": ours}, "naive": {"met_ratio": naive}}
    return {"deadline_factor": factor, "load": load, **sides, "passed": True}


OVERLOAD = draw_loads.PICTURES[0]


def test_a_panel_for_each_deadline_and_the_same_file_each_time(tmp_path):
    cells = [make_cell(f, load, 0.5, 0.4) for f in (2.0, 1.1) for load in (2.0, 1.0)]
    path = tmp_path / "overload.svg"
    draw_loads.draw({"cells": cells}, OVERLOAD, path)
    text = path.read_text(encoding="utf-8")
    assert text.index("deadline 1.1 x both networks") < text.index("deadline 2 x both networks")
    assert "naive" in text
    draw_loads.draw({"cells": cells}, OVERLOAD, path)
    assert path.read_text(encoding="utf-8") == text


def test_loads_at_which_the_usual_node_is_as_good():
    cells = [make_cell(1.1, 0.5, 0.9, 1.0), make_cell(1.1, 1.0, 0.5, 0.4), make_cell(2, 2, 1, 1)]
    assert draw_loads.find_as_good(cells, OVERLOAD) == [0.5, 2.0]
