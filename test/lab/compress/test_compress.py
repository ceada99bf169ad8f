"""`compress` as scripts see it: the JSON, the files, and the errors of bad arguments."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path

import pytest
import safetensors.numpy

from jetson_dnn_rt.cli import main
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.decomposition import load_reduced
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.spec import DecompositionSpec

KEYS = {
    "macs_before", "macs_after", "macs_reduction", "parameters_before", "parameters_after",
    "layers", "time_ms_before", "time_ms_after", "agreement",
}  # fmt: skip


def test_a_builtin_model_becomes_smaller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library, output = tmp_path / "library", tmp_path / "new" / "output"
    code = main.main(
        [
            "compress", "--model", "builtin:detector", "--ranks", "macs:0.6", "--frames",
            "synthetic:2", "--frames-limit", "4", "--recover-steps", "1", "--keep-slower",
            "--backend", "torch", "--engine-cache", str(library), "--output", str(output),
            "--json",
        ]
    )  # fmt: skip
    assert code == 0
    captured = capsys.readouterr()
    (line,) = captured.out.splitlines()
    report = json.loads(line)
    assert report.keys() >= KEYS
    assert 0.4 <= report["macs_reduction"] < 0.45
    assert report["frames"] == "synthetic:2"
    assert report["frame_count"] == 4
    assert report["recovery"]["steps"] == 1
    for text in ("neck.smooth8.0", "decomposed", "1x1", "agreement", "recovery", "kept in"):
        assert text in captured.err
    assert json.loads((output / "report.json").read_text()) == report
    with (output / "layers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["layer"] for row in rows] == [layer["name"] for layer in report["layers"]]
    assert sum(int(row["macs_after"]) for row in rows) == report["macs_after"]
    weights = safetensors.numpy.load_file(output / "weights.safetensors")
    parameters = sum(value.size for name, value in weights.items() if ".mean" not in name)
    assert parameters >= report["parameters_after"]
    model = load_model("builtin:detector")
    loaded = load_reduced(model, DecompositionSpec.parse("tucker-0.60"), Library(library))
    assert loaded is not None
    assert {name: tuple(value.shape) for name, value in loaded.state_dict().items()} == {
        name: value.shape for name, value in weights.items()
    }


def test_the_builtin_scenes_replace_missing_frames_with_a_warning(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Ends early, with a model that is not there."""
    with caplog.at_level(logging.WARNING):
        arguments = ["compress", "--model", "onnx:/no/such.onnx", "--engine-cache", "none"]
        assert main.main(arguments) == 1
    assert "frames of your own camera" in caplog.text
    assert "/no/such.onnx" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--ranks", "half"], 2, "ranks 'half' must look like macs:0.5"),
        (["--ranks", "macs:1.5"], 2, "macs must be in (0, 1]"),
        (["--ranks", "best:0.5"], 2, "ranks must be one of macs"),
        (["--ranks", "macs:0.01", "--frames-limit", "2"], 2, "smallest share possible"),
        (["--frames", "film:x"], 2, "give video:PATH, images:DIR, bag:PATH"),
        (["--frames", "video:/no/such.mp4"], 1, "/no/such.mp4 is not there"),
        (["--frames", "synthetic", "--frames-limit", "1"], 2, "two frames at least: 1"),
        (["--model", "builtin:nothing"], 2, "builtin:nothing is unknown"),
        (["--backend", "caffe", "--frames-limit", "2"], 2, "back end must be one of"),
        (["--engine-cache", "/dev/null"], 2, "is not a folder"),
        (["--output", "/dev/null/out"], 2, "--output /dev/null/out"),
    ],
)
def test_bad_arguments_are_one_line_that_names_them(
    options: list[str],
    code: int,
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["compress", "--model", "builtin:detector", "--engine-cache", str(tmp_path), *options]
    assert main.main(given) == code
    captured = capsys.readouterr()
    errors = [line for line in captured.err.splitlines() if "error:" in line]
    assert len(errors) == 1
    assert text in errors[0]
    assert captured.out == ""


@pytest.mark.parametrize(
    "options",
    [["--input-size", "640"], ["--recover-steps", "-1"], ["--method", "cp"], ["--seed", "x"]],
)
def test_values_of_the_wrong_form_end_with_code_2(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["compress", "--model", "builtin:detector", *options])
    assert ended.value.code == 2
    assert options[0] in capsys.readouterr().err
