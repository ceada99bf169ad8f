# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Figures in prose are those of their result files, or the check fails."""

from __future__ import annotations

import json

import bound_figures
import pytest
from bound_figures import FigureError, bind, find_unbound

from benchmarks.harness.tables import UNDECIDED

RESULT = {
    "passed": False,
    "rows": [
        {"part": "bare", "ms": {"p50": 2.131, "p99": 3.257}, "lost": 0, "count": 1802},
        {"part": "composed", "ms": {"p50": -1.25, "p99": 12345.6}, "lost": 3, "count": 3600},
    ],
    "bars_ms": {"p50": 0.5},
}
VERDICT = '[verdict]: figures.md#a-run "passed"\n'
BARE = "pick(rows, part='bare')"


@pytest.fixture
def results(tmp_path):
    (tmp_path / "a_run.json").write_text(json.dumps(RESULT))
    (tmp_path / "met.json").write_text(json.dumps({**RESULT, "passed": True}))
    (tmp_path / "open.json").write_text(json.dumps({**RESULT, "passed": UNDECIDED}))
    return tmp_path


def make_page(text, expression, run="met"):
    return f'{text}\n\n[figure]: figures.md#{run} "{expression}"\n'


@pytest.mark.parametrize(
    ("text", "expression", "shown"),
    [
        ("9.9 ms", f"{BARE}.ms.p50", "2.1 ms"),
        ("9 ms", f"{BARE}.ms.p50", "2 ms"),
        ("9.000 to 9.00", "span(row.ms.p50 for row in rows)", "-1.250 to 2.13"),
        ("+1 %", f"{BARE}.ms.p50", "+2 %"),
        ("1 us", "max(row.ms.p99 for row in rows)", "12,346 us"),
        ("12,000 us at p99", f"{BARE}.ms.p99", "3 us at p99"),
        ("0 of 1", "count(row.lost for row in rows)", "3 of 2"),
        ("bar 9.9", "bars_ms.p50", "bar 0.5"),
        ("9, 9.9", f"{BARE}['count'], {BARE}.ms.p99", "1802, 3.3"),
    ],
)
def test_a_figure_is_that_of_its_file(results, text, expression, shown):
    page = make_page(f"It takes [{text}][figure] here.", expression)
    wanted = make_page(f"It takes [{shown}][figure] here.", expression)
    assert bind(page, results) == wanted
    assert bind(wanted, results) == wanted


def test_a_verdict_is_that_of_its_file(results):
    page = "A run ([passed][verdict]).\n\n" + VERDICT
    assert bind(page, results) == "A run ([NOT passed][verdict]).\n\n" + VERDICT
    page = page.replace("a-run", "open")
    assert "([not decided][verdict])" in bind(page, results)


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("[1 ms][figure]", "no definition"),
        (make_page("none", "bars_ms.p50"), "not used: figure"),
        (make_page("[1 ms][figure]", "bars_ms.p50", "absent"), "No such file"),
        (make_page("[1 ms][figure]", "bars_ms.p99"), "there is no 'p99', but p50"),
        (make_page("[1 ms][figure]", "pick(rows, part='x')"), "0 rows have"),
        (make_page("[1 ms][figure]", "bars_ms.p50, 1"), "1 numbers in the text, 2 values"),
        (make_page("[1 ms][figure]", "open('x')"), "'open' is not defined"),
        (make_page("[1 ms][figure]", "bars_ms.p50", "a-run"), "a-run, which did not pass"),
        (make_page("[1 ms][figure]", "bars_ms.p50", "open"), r"did not pass \(not decided\)"),
    ],
)
def test_a_figure_that_is_bound_to_nothing_is_refused(results, page, reason):
    with pytest.raises(FigureError, match=reason):
        bind(page, results)


def test_a_run_that_missed_a_bar_is_said_so_in_every_section(results):
    definition = '[figure]: figures.md#a-run "bars_ms.p50"\n' + VERDICT
    said = "# One\n[1.0 ms][figure], [passed][verdict]\n"
    assert "0.5 ms" in bind(said + definition, results)
    with pytest.raises(FigureError, match="a-run"):
        bind(f"{said}# Two\n[1.0 ms][figure]\n{definition}", results)


def test_code_is_left_alone(results):
    page = "`rows[0][figure]`\n```sh\n# x[1 ms][figure]\n```\n"
    assert bind(page, results) == page


def test_quantities_that_are_bound_to_nothing_are_found():
    page = make_page("It takes 3.1 ms, not [2 ms][figure] or `4 ms`,\nin 640x480.\n3 of 4", "x")
    assert find_unbound(page) == ["1: 3.1 ms", "3: 3 of 4"]


# Other pages have rules and limits as well, which look the same.
@pytest.mark.parametrize(
    "name", ["README.md", "distributions.md", "export_c.md", "limits.md", "paper003.md"]
)
def test_every_quantity_is_bound(name):
    (page,) = [page for page in bound_figures.PAGES if page.name == name]
    text = page.read_text(encoding="utf-8")
    assert not find_unbound(text), "bind them, as CONTRIBUTING.md says, or leave them out"
