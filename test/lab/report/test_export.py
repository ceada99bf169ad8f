"""`jetson-dnn-rt export`: as scripts and people call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traced_jobs import make_record, write_parquet_trace

from jetson_dnn_rt.cli.main import BAD_ARGUMENTS, FAILED, main

pytest.importorskip("pyarrow")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The output folder of a run."""
    write_parquet_trace(tmp_path / "out" / "trace", [make_record(i) for i in range(3)])
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("name", "options", "kind", "files"),
    [
        ("a.csv", [], "csv", ["a.csv", "a-stages.csv"]),
        ("a.xlsx", [], "xlsx", ["a.xlsx"]),
        ("new/a.json", [], "perfetto", ["a.json"]),
        ("a.json.gz", [], "perfetto", ["a.json.gz"]),
        ("a.trace", ["--format", "perfetto"], "perfetto", ["a.trace"]),
    ],
)
def test_every_format(
    output: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    options: list[str],
    kind: str,
    files: list[str],
) -> None:
    if kind == "xlsx":
        pytest.importorskip("xlsxwriter")
    target = output / name
    assert main(["export", str(output), "--output", str(target), *options, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    written = [str(target.parent / file) for file in files]
    assert result == {"format": kind, "files": written, "jobs": 3}
    assert all(Path(file).stat().st_size > 100 for file in written)


def test_several_traces_and_words_for_people(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_parquet_trace(tmp_path / "other", [make_record(0)])
    target = tmp_path / "a.csv"
    assert main(["export", str(output), str(other), "--output", str(target)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "(4 jobs)" in captured.err
    labels = [line.split(",")[0] for line in target.read_text().splitlines()]
    assert labels == ["trace", "out", "out", "out", "other"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing", "--output", "a.csv"], "No such file"),
        (["out", "--output", "a.doc"], "--format is missing"),
        (["out", "out", "--output", "a.csv"], "given twice"),
        (["out", "--output", "/proc/no/a.csv"], "cannot write"),
    ],
)
def test_what_cannot_be_used(
    output: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(output.parent)
    assert main(["export", *arguments]) == BAD_ARGUMENTS
    assert message in capsys.readouterr().err


def test_a_damaged_trace_fails(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = output / "trace" / "jobs-0000.parquet"
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(396)
    path.write_bytes(data)
    assert main(["export", str(output), "--output", str(output / "a.csv")]) == FAILED
    assert "is damaged" in capsys.readouterr().err
