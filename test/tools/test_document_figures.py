# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""docs/figures.md agrees with the results, and the check tells when it does not."""

from __future__ import annotations

import json
import subprocess
import sys

import document_figures
import pytest

from benchmarks.harness.main import load
from benchmarks.harness.origin import describe_code
from benchmarks.harness.tables import UNDECIDED

RESULTS = sorted(document_figures.RESULTS.glob("*.json"))


def test_the_page_agrees_with_the_results():
    # As CONTRIBUTING has it: started as a file, from any folder.
    command = [sys.executable, document_figures.__file__, "--check"]
    assert subprocess.run(command, cwd="/", check=False).returncode == 0


def test_a_page_that_differs_fails(tmp_path, capsys):
    file = tmp_path / "figures.md"
    only = ["--pages", "--file", str(file)]
    assert document_figures.main(["--check", *only]) == 1
    assert "fix: python tools/document_figures.py" in capsys.readouterr().err
    assert document_figures.main(only) == 0
    assert document_figures.main(["--check", *only]) == 0
    text = file.read_text(encoding="utf-8")
    assert "python -m benchmarks scale" in text
    assert "jetson-dnn-rt bench" not in text
    file.write_text(text.replace("0.930", "0.931"), encoding="utf-8")
    assert document_figures.main(["--check", *only]) == 1


def test_a_page_whose_figures_differ_fails(tmp_path, capsys):
    page = tmp_path / "page.md"
    definition = '[bar]: figures.md#trace "bar_us.p99"\n[trace]: figures.md#trace "passed"\n'
    page.write_text(f"[19 us][bar] ([passed][trace])\n\n{definition}", encoding="utf-8")
    given = ["--file", str(tmp_path / "figures.md"), "--pages", str(page)]
    assert document_figures.main(["--check", *given]) == 1
    assert "fix: python tools/document_figures.py" in capsys.readouterr().err
    assert document_figures.main(given) == 0
    assert page.read_text(encoding="utf-8").startswith("[20 us][bar] ([NOT passed][trace])")
    assert document_figures.main(["--check", *given]) == 0
    page.write_text("[19 us][bar]\n", encoding="utf-8")
    assert document_figures.main(given) == 1
    assert "no definition" in capsys.readouterr().err


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_run_with_a_verdict_names_its_bars(path):
    row = document_figures.Run(path).describe()
    assert row["bars"] or row["verdict"] == "not judged"


def test_a_verdict_is_what_the_benchmark_says_of_the_file():
    judged = []
    for path in RESULTS:
        result = json.loads(path.read_text(encoding="utf-8"))
        name = result.get("benchmark")
        if name and (rejudge := getattr(load(name), "rejudge", None)):
            judged.append(name)
            assert result["passed"] == rejudge(result), path.name
    assert {"backends", "batching", "cancel", "paper000"} <= set(judged)


def test_a_run_shows_the_code_that_it_measured(tmp_path):
    (path,) = [path for path in RESULTS if path.stem == "engine"]
    result = json.loads(path.read_text(encoding="utf-8"))
    code = {"commit": "0123456789abcdef", "uncommitted": [], "rooms": {}}
    copy = tmp_path / path.name
    copy.write_text(json.dumps({**result, "code": code, "passed": UNDECIDED}), encoding="utf-8")
    run = document_figures.Run(copy)
    row = run.describe()
    assert (row["code"], row["verdict"]) == ("01234567, changed since", "not decided")
    assert "p50 <= 8 us" in row["bars"]
    assert "; code: 01234567, changed since." in run.render()
    copy.write_text(json.dumps({**result, "code": describe_code("engine")}), encoding="utf-8")
    assert "changed" not in document_figures.Run(copy).code


def test_seeds_are_shown_shortly():
    result = {"seeds": 10, "tuning_seeds": "0-2", "test_seeds": "4,7", "frames": 3}
    assert document_figures.describe_seeds(result) == "10 of them; tuning 0-2; test 4,7"
    assert document_figures.describe_seeds({"frames": 3}) is None
