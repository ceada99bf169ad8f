# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The figure of a soak: every series that there is, and the same file from the same result."""

import pytest

pytest.importorskip("matplotlib")

import draw_soak


def test_a_line_for_each_series_and_the_same_file_each_time(tmp_path):
    names = [name for _, panel in draw_soak.PANELS for name in panel if name != "malloc_used_mb"]
    report = {"series": {"seconds": [0.0, 60.0, 120.0], **{n: [1.0, 3.0, 2.0] for n in names}}}
    path = tmp_path / "soak.svg"
    draw_soak.draw(report, path)
    text = path.read_text(encoding="utf-8")
    titles = {title: name for _, panel in draw_soak.PANELS for name, title in panel.items()}
    assert {title for title in titles if f">{title}<" in text} == {
        title for title, name in titles.items() if name in names
    }
    draw_soak.draw(report, path)
    assert path.read_text(encoding="utf-8") == text
