# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`compress` as scripts see it: the JSON, the files, and the errors of bad arguments."""

from __future__ import annotations

import csv
import json
import logging
from dataclasses import replace

import cv2
import numpy as np
import pytest
import safetensors.numpy
from networks import make_onnx

from jetson_dnn_rt.cli import main
from jetson_dnn_rt.config.parameter_file import read_parameter_file
from jetson_dnn_rt.config.perception import read_task
from jetson_dnn_rt.lab.compress import command, compression
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.runtime.building import builder as building
from jetson_dnn_rt.runtime.task import open_model
from jetson_dnn_rt.variants.decomposition import load_reduced
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring import measurement
from jetson_dnn_rt.variants.measuring.agreement import Agreement
from jetson_dnn_rt.variants.running.variant_set import VariantSet
from jetson_dnn_rt.variants.spec import DecompositionSpec, VariantSpec

KEYS = {
    "macs_before", "macs_after", "macs_reduction", "parameters_before", "parameters_after",
    "layers", "time_ms_before", "time_ms_after", "agreement",
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_runs(monkeypatch):
    monkeypatch.setattr(command, "DEFAULT_RUNS", 5)


def test_a_model_becomes_smaller(tmp_path, capsys):
    library, output = tmp_path / "library", tmp_path / "new" / "output"
    source = f"onnx:{make_onnx(tmp_path / 'network.onnx', classes=64)}"
    options = (
        f"--model {source} --ranks macs:0.6 --frames synthetic:2 --frames-limit 4 "
        "--recover-steps 1 --keep-slower --least-agreement 0 --backend torch --json "
        f"--engine-cache {library} --output {output}"
    )
    assert main.main(["compress", *options.split()]) == 0
    captured = capsys.readouterr()
    (line,) = captured.out.splitlines()
    report = json.loads(line)
    assert report.keys() >= KEYS
    assert report["time_ms_before"] > 0.0
    assert report["time_ms_after"] > 0.0
    assert 0.4 <= report["macs_reduction"] < 0.45
    assert report["frames"] == "synthetic:2"
    assert report["frame_count"] == 4
    assert report["recovery"]["steps"] == 1
    words = ("decomposed", "agreement", "recovery", "kept in")
    for text in (report["layers"][0]["name"], *words):
        assert text in captured.err
    assert json.loads((output / "report.json").read_text()) == report
    with (output / "layers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["layer"] for row in rows] == [layer["name"] for layer in report["layers"]]
    assert all(int(r["macs_after"]) <= int(r["macs_before"]) for r in rows)
    weights = safetensors.numpy.load_file(output / "weights.safetensors")
    spec = DecompositionSpec.parse("tucker-0.60")
    loaded = load_reduced(load_model(source), spec, Library(library)).state_dict()
    assert {name: tuple(value.shape) for name, value in loaded.items()} == {
        name: value.shape for name, value in weights.items()
    }


def test_the_builtin_scenes_replace_missing_frames_with_a_warning(capsys, caplog):
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
def test_bad_arguments_are_one_line_that_names_them(options, code, text, tmp_path, capsys):
    given = ["compress", "--model", "builtin:detector", "--engine-cache", str(tmp_path), *options]
    assert main.main(given) == code
    captured = capsys.readouterr()
    errors = [line for line in captured.err.splitlines() if "error:" in line]
    assert len(errors) == 1
    assert text in errors[0]
    assert captured.out == ""


@pytest.fixture
def task_file(tmp_path):
    """A task with a preprocessing and frames of its own; the frames are all alike."""
    folder = tmp_path / "frames"
    folder.mkdir()
    for number in range(4):
        cv2.imwrite(str(folder / f"{number}.png"), np.full((48, 64, 3), 90, np.uint8))
    network = make_onnx(tmp_path / "network.onnx", classes=64)
    path = tmp_path / "robot.yaml"
    path.write_text(
        "/**/perception: {ros__parameters: {tasks: [front]}}\n"
        f"/**/front: {{ros__parameters: {{model: 'onnx:{network}', "
        "kind: segmentation, preprocessing: {scale: 0.5}, "
        f"build_frames: 'images:{folder}', engine_cache: '{tmp_path / 'library'}'}}}}\n",
        encoding="utf-8",
    )
    return path


def test_a_task_s_network_is_compressed_as_the_task_reads_it(
    task_file, tmp_path, capsys, monkeypatch
):
    made = []
    monkeypatch.setattr(
        compression, "_read_frames", lambda m, f, read=compression._read_frames: made.append(m)
        or read(m, f),
    )  # fmt: skip
    options = "--ranks macs:0.6 --keep-slower --backend torch --least-agreement 0 --json"
    assert main.main(["compress", "--params", str(task_file), *options.split()]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["frames"] == f"images:{tmp_path / 'frames'}"
    assert made[0].preprocessing.scale == 0.5
    spec = DecompositionSpec.parse("tucker-0.60")
    assert load_reduced(made[0], spec, Library(tmp_path / "library")) is not None


def test_what_compress_measured_is_present_for_build(task_file, tmp_path, capsys, monkeypatch):
    """With the task's threads and stages; build measures only what else there is."""
    small = "tucker-0.60@torch-fp32"
    text = task_file.read_text(encoding="utf-8")
    other = "variants: [full@torch-fp32, full@onnxruntime-fp32, tucker-0.60@torch-fp32]"
    task_file.write_text(text.replace("kind:", f"threads: 2, stages: 2, {other}, kind:"))
    monkeypatch.setattr(building, "choose_default", lambda m: VariantSpec("full", "torch"))
    options = "--ranks macs:0.6 --keep-slower --backend torch --least-agreement 0 --json"
    assert main.main(["compress", "--params", str(task_file), *options.split()]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["threads"] == 2
    tried = []
    try_variant = building.try_variant

    def note(build, frames, *, runs, **more):
        tried.append(runs)
        return try_variant(build, frames, runs=runs, **more)

    monkeypatch.setattr(building, "try_variant", note)
    command = ["build", "--params", str(task_file), "--runs", "4", "--json"]
    main.main(command)
    result = json.loads(capsys.readouterr().out)
    variants = {v["variant"]: v for v in result["variants"]}
    states = {name: v["state"] for name, v in variants.items()}
    assert states["full@torch-fp32"] == "present"
    assert states["full@onnxruntime-fp32"] == "built"
    assert not variants[small]["built"]
    assert variants[small]["threads"] == 2
    assert variants[small]["time_ms"]["p50"] == pytest.approx(report["time_ms_after"])
    assert list(variants[small]["stages"]) == list(variants["full@torch-fp32"]["stages"])
    # Two back ends warm up, one is measured, and one only gives the results to compare with.
    assert sorted(tried) == [1, 1, 1, 4]


def test_nothing_stays_without_a_library(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = f"onnx:{make_onnx(tmp_path / 'network.onnx', classes=64)}"
    options = (
        f"--model {source} --ranks macs:0.6 --frames-limit 4 --keep-slower --least-agreement 0 "
        "--backend torch --engine-cache none --json"
    )
    assert main.main(["compress", *options.split()]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["library_entry"] is None
    assert report["time_ms_after"] > 0.0
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("value", "evidence", "words"),
    [
        (0.183, 414, "it agrees 0.183 mAP@0.5 with full@torch-fp32, at least 0.9 is asked for"),
        (1.0, 0, "unknown: no boxes in 20 frames; fix: frames that show what the network finds"),
    ],
)
def test_a_network_that_agrees_too_little_is_refused_and_known_as_that(
    task_file, tmp_path, capsys, monkeypatch, value, evidence, words
):
    monkeypatch.setattr(building, "choose_default", lambda m: VariantSpec("full", "torch"))
    for module in (compression, building):
        monkeypatch.setattr(
            module, "compare",
            lambda kind, full, small, name: Agreement(value, "mAP@0.5", 20, evidence, name),
        )  # fmt: skip
    options = "--ranks macs:0.6 --keep-slower --backend torch"
    output = tmp_path / "small"
    arguments = ["compress", "--params", str(task_file), *options.split(), "--output", str(output)]
    assert main.main(arguments) == 1
    text = capsys.readouterr().out
    assert "REFUSED" in text
    assert words in text
    assert words in json.loads((output / "report.json").read_text())["refused"]
    # The library knows its figure: it is neither loaded nor built again.
    config = read_task(read_parameter_file(task_file), "front")
    small = replace(config, variants=("full@torch-fp32", "tucker-0.60@torch-fp32"))
    variants = VariantSet(small, open_model(small), library=Library(tmp_path / "library"))
    variants.close()
    assert words in variants.left_out["tucker-0.60@torch-fp32"]
    assert variants.missing == ()


def test_a_network_that_is_not_faster_is_refused_unless_asked_for(task_file, capsys, monkeypatch):
    # Nothing is faster or lighter by all of its time or memory.
    monkeypatch.setattr(measurement, "MARGIN", 1.0)
    options = ["--ranks", "macs:0.6", "--backend", "torch", "--least-agreement", "0.5"]
    arguments = ["compress", "--params", str(task_file), *options]
    assert main.main(arguments) == 1
    text = capsys.readouterr().out
    assert "neither faster nor lighter than full@torch-fp32" in text
    assert "try to keep less of the network" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--task", "rear"], "there is no task rear; fix: --task with one of front"),
        (["--weights", "none"], "put weights and input_size into"),
    ],
)
def test_options_that_do_not_go_with_a_task_are_named(task_file, capsys, options, words):
    assert main.main(["compress", "--params", str(task_file), *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["--input-size", "640"], ["--recover-steps", "-1"], ["--method", "cp"], ["--seed", "x"]],
)
def test_values_of_the_wrong_form_end_with_code_2(options, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["compress", "--model", "builtin:detector", *options])
    assert ended.value.code == 2
    assert options[0] in capsys.readouterr().err
