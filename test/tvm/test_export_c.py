"""`export-c` as scripts see it: the JSON, the files, and what is said of bad arguments."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from jetson_dnn_rt.cli import main

pytest.importorskip("tvm", reason="apache-tvm is not installed")


def test_a_stage_is_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "sources"
    with caplog.at_level(logging.WARNING):
        code = main.main(
            [
                "export-c", "--model", "builtin:detector", "--stages", "4", "--stage", "4",
                "--engine-cache", "none", "--name", "last", "--output", str(output),
                "--call-graph", "--json",
            ]
        )  # fmt: skip
    assert code == 0
    captured = capsys.readouterr()
    (line,) = captured.out.splitlines()
    report = json.loads(line)
    assert report["variant"] == "full@tvm-fp32"
    assert (report["tuned"], report["kernels_tuned"]) == (False, 0)
    assert report["arena_bound_bytes"] <= report["arena_bytes"]
    assert {Path(file).name for file in report["files"]} <= {
        path.name for path in output.iterdir()
    }
    graph = json.loads((output / "call_graph.json").read_text())
    assert graph["steps"] == report["call_graph"]
    assert all(step["function"] in captured.err for step in graph["steps"])
    # An untuned export must not be taken for the real thing.
    assert "RIGHT BUT SLOW" in caplog.text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--variant", "full@openvino-fp32"], "kernels come from TVM"),
        (["--stages", "2"], "--stages without --stage"),
        (["--stages", "2", "--stage", "3"], "--stage 3 of --stages 2"),
        (["--target", "sparc:v9"], "unknown"),
        (["--variant", "tucker-0.50@tvm-fp32"], "is not in the library"),
    ],
)
def test_bad_arguments(
    options: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main.main(
        [
            "export-c", "--model", "builtin:detector", "--engine-cache", "none",
            "--output", str(tmp_path / "out"), *options,
        ]
    )  # fmt: skip
    assert code == main.BAD_ARGUMENTS
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_half_precision_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main.main(
        [
            "export-c", "--model", "builtin:detector", "--engine-cache", "none",
            "--output", str(tmp_path / "out"), "--variant", "full@tvm-fp16",
        ]
    )  # fmt: skip
    assert code == main.FAILED
    assert "no type of half precision" in capsys.readouterr().err
