# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""docs/figures.md agrees with the results, and the check tells when it does not."""

from __future__ import annotations

import subprocess
import sys

import document_figures


def test_the_page_agrees_with_the_results():
    # As CONTRIBUTING has it: started as a file, from any folder.
    command = [sys.executable, document_figures.__file__, "--check"]
    assert subprocess.run(command, cwd="/", check=False).returncode == 0


def test_a_page_that_differs_fails(tmp_path, capsys):
    file = tmp_path / "figures.md"
    assert document_figures.main(["--check", "--file", str(file)]) == 1
    assert "fix: python tools/document_figures.py" in capsys.readouterr().err
    assert document_figures.main(["--file", str(file)]) == 0
    assert document_figures.main(["--check", "--file", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert "python -m benchmarks scale" in text
    assert "jetson-dnn-rt bench" not in text
    file.write_text(text.replace("0.930", "0.931"), encoding="utf-8")
    assert document_figures.main(["--check", "--file", str(file)]) == 1
