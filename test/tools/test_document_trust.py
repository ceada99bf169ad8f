# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""docs/trust.md agrees with the results of the campaigns, and shows all of them."""

from __future__ import annotations

import json
import subprocess
import sys

import document_trust
import pytest
from document_trust import BEGIN, END, PROGRAMS, render

RESULT = {
    "campaign": "rogue",
    "command": "python test/campaigns/rogue.py --seed 7",
    "seed": 7,
    "took_minutes": 10.04,
    "passed": False,
    "bars": [
        {"bar": "no process ends", "reached": "0 of 3", "met": True},
        {"bar": "met ratio | change < 1 %", "reached": "2.1 %\nof 6000", "met": False},
        {"bar": "a GPU", "reached": "there is none", "met": None},
    ],
    "counts": {},
    "faults": ["detector `lost`\nframe 3 | <b>"],
    "faults_in_all": 3,
    "series": {},
    "machine": {"cpu": "Some CPU", "cores": 2, "date": "2026-01-31T09:30:00"},
}


@pytest.fixture
def results(tmp_path):
    return tmp_path


def put(folder, name, **changes):
    (folder / f"{name}.json").write_text(json.dumps({**RESULT, **changes}), encoding="utf-8")


def find_rows(text):
    """Cells of the table's rows."""
    rows = [line.replace("\\|", "/") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_the_page_agrees_with_the_results():
    # As the page has it: started as a file, from any folder.
    command = [sys.executable, document_trust.__file__, "--check"]
    assert subprocess.run(command, cwd="/", check=False).returncode == 0


def test_each_bar_is_a_row_with_its_verdict(results):
    put(results, "rogue_long")
    rows = [row for row in find_rows(render(results)) if row[2] != "not run yet"]
    assert [row[1:4] for row in rows] == [
        ["no process ends", "0 of 3", "yes"],
        ["met ratio / change &lt; 1 %", "2.1 % of 6000", "NOT"],
        ["a GPU", "there is none", "not judged"],
    ]
    assert rows[0][0] == "2. rogue participant"
    command = "`python test/campaigns/rogue.py --seed 7`"
    assert rows[0][4:] == ["7", "10.0", command, "Some CPU, 2 cores", "2026-01-31"]


def test_all_campaigns_have_a_row_and_none_is_left_out(results):
    put(results, "made_up", campaign="made_up", bars=[])
    rows = find_rows(render(results))
    assert [row[0] for row in rows] == [*PROGRAMS, "made_up"]
    assert len(PROGRAMS) == 8
    assert {row[2] for row in rows[:-1]} == {"not run yet"}
    assert rows[-1][1:4] == ["-", "no bar", "not judged"]


def test_faults_are_named_below_the_table(results):
    put(results, "rogue")
    put(results, "soak", campaign="soak", faults=[], faults_in_all=0)
    text = render(results)
    assert text.endswith(
        "### Faults of rogue\n\n`python test/campaigns/rogue.py --seed 7`:\n\n"
        "- `` detector 'lost' frame 3 | <b> ``\n- and 2 more"
    )
    assert "Faults of soak" not in text


def test_the_plot_is_shown_where_there_is_one(results):
    plot = results / "soak.svg"
    assert "soak.svg" not in render(results, plot=plot)
    plot.write_text("<svg/>")
    assert "](images/soak.svg)" in render(results, plot=plot)


def test_programs_are_listed_by_what_they_say(results):
    text = render(results)
    assert "[accounting](../test/campaigns/accounting.py): every frame ends in exactly" in text
    assert "program.py" not in text


def test_a_page_that_differs_fails_and_is_written(results, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"head\n{BEGIN}\nold\n{END}\ntail\n", encoding="utf-8")
    given = ["--file", str(page), "--results", str(results)]
    put(results, "rogue")
    assert document_trust.main(["--check", *given]) == 1
    assert "fix: python tools/document_trust.py" in capsys.readouterr().err
    assert document_trust.main(given) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("head\n")
    assert text.endswith("\ntail\n")
    assert "old" not in text
    assert document_trust.main(["--check", *given]) == 0


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({**RESULT, "bars": [{}]})])
def test_a_file_that_is_no_result_is_named(results, tmp_path, capsys, text):
    (results / "bad.json").write_text(text)
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}{END}", encoding="utf-8")
    assert document_trust.main(["--file", str(page), "--results", str(results)]) == 1
    assert "bad.json is no result of a campaign" in capsys.readouterr().err


def test_a_page_without_markers_is_named(results, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(BEGIN, encoding="utf-8")
    assert document_trust.main(["--file", str(page), "--results", str(results)]) == 1
    assert "lacks the markers" in capsys.readouterr().err
