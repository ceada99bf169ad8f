# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The table of `top`: what fits on a terminal, and what a terminal must not be sent."""

from __future__ import annotations

import io

import pytest

from jetson_dnn_rt.watch.graph import Graph
from jetson_dnn_rt.watch.table import COLUMNS, format_view, render_view

pytest.importorskip("rich", reason="rich is not installed: pip install 'jetson_dnn_rt[watch]'")

from rich.console import Console


@pytest.fixture
def graph():
    graph = Graph(lambda: 10**12)
    frame = {"deadline_ms": "33", "budget_ms": "25.5", "variant": "tucker-0.50@openvino-bf16"}
    graph.add_frame("/front/detector", {**frame, "outcome": "met", "response_ms": "11"})
    graph.add_frame("/front/detector", {**frame, "outcome": "skipped"})
    graph.add_frame("/rear/detector", {**frame, "outcome": "late", "response_ms": "40"})
    graph.set_present(["/front/detector", "/front/segmenter"])
    graph.add_status(
        "/coordinator: policy_status",
        0,
        "neuos decides",
        {"policy": "neuos", "clocks": "gpu 1.3 GHz", "a.variant": "full", "power_w": "9.96"},
    )
    graph.add_status("/front/detector: camera_status", 2, "no frame", {})
    graph.add_frame("/front/detector", {"outcome": "?"})
    return graph


def draw(graph, width, encoding="utf-8", **options):
    file = io.TextIOWrapper(io.BytesIO(), encoding)
    console = Console(file=file, width=width, height=40, highlight=False, markup=False, **options)
    console.print(render_view(graph.snapshot(), console))
    file.flush()
    return file.buffer.getvalue().decode(encoding)


def test_plain_text_has_everything(graph):
    lines = format_view(graph.snapshot()).splitlines()
    header, _, front, segmenter, rear, *notes = lines
    titles = [column.title for column in COLUMNS if not column.optional]
    assert header.split() == " ".join(titles).split()
    assert front.split()[2:9] == ["1", "0", "1", "0", "0", "0", "11.0"]
    assert segmenter.split()[-1] == "-"
    assert rear.split()[-1] == "gone"
    assert notes == [
        "/coordinator: neuos; a full; clocks gpu 1.3 GHz; 10.0 W",
        "ERROR /front/detector: camera_status: no frame",
        "messages not used: 1 (outcome)",
    ]


def test_without_a_task_it_says_where_to_look():
    assert "ROS_DOMAIN_ID" in format_view(Graph().snapshot())
    assert "ROS_DOMAIN_ID" in draw(Graph(), 120)


def test_the_bar_ends_at_the_deadline_or_past_it(graph):
    _, _, _, front, segmenter, rear, *_ = draw(graph, 200).splitlines()
    assert "████········│" in front
    assert "████████████│███" in rear
    assert "│" not in segmenter


def test_a_terminal_without_unicode_gets_ascii(graph):
    text = draw(graph, 200, "ascii")
    assert "####........|" in text
    assert "############|###" in text


@pytest.mark.parametrize("width", [60, 80, 100, 120, 140, 160, 200])
def test_no_line_of_the_table_is_wider_than_the_terminal(width, graph):
    text = draw(graph, width)
    rows = [line for line in text.splitlines() if line.startswith(("task", "/front/", "/rear/"))]
    assert len(rows) == 4
    assert max(map(len, rows)) <= width
    titles = [column.title for column in COLUMNS if column.title in rows[0]]
    assert {"task", "met", "late", "skipped"} <= set(titles)
    assert ("variant" in titles) == (width >= 140)
    always = [column for column in COLUMNS if not column.optional]
    assert (len(titles) == len(always)) == (width == 200)


def test_violations_have_a_column_where_a_task_has_a_limit(graph):
    assert "violated" not in format_view(graph.snapshot())
    graph.add_status("/front/detector: task_status", 1, "...", {"met_of_violations": "17"})
    header, _, front, segmenter, *_ = format_view(graph.snapshot()).splitlines()
    at = header.split().index("violated")
    assert (front.split()[at], segmenter.split()[at]) == ("17", "-")
    assert "violated" in draw(graph, 220)


def test_what_was_sent_cannot_steer_the_terminal():
    graph = Graph()
    graph.set_present(["/a"])
    evil = "\x1b[2J\x07\x9b31m[bold]:smile:\n"
    graph.add_status("/a: task_status", 1, evil, {})
    graph.add_status(
        "/c: policy_status", 0, "", {"policy": evil, "clocks": evil, "x.variant": evil}
    )
    for text in (draw(graph, 120), format_view(graph.snapshot())):
        assert text.isascii()
        assert not {c for c in text if not c.isprintable()} - {"\n"}
        assert text.count("[bold]:smile:") == 4
