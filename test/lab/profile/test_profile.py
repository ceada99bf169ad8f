# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`profile` as scripts see it: the tables it writes, the JSON, and the errors of bad arguments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fake_boards import MODEL, SCRIPT_NS, FakeBoard

from jetson_dnn_rt.cli import main
from jetson_dnn_rt.coordinator.tables.files import load_tables
from jetson_dnn_rt.lab.profile.run import name_tasks
from jetson_dnn_rt.platforms.boards import tx2_space
from jetson_dnn_rt.platforms.platform import UnknownPlatform


def test_one_model_at_present_clocks(tmp_path, profile):
    output = tmp_path / "tables.json"
    code, report, errors = profile(f"--runs 6 --output {output} --deadline camera=25 --rate 20")
    assert code == 0
    (task,) = report["tasks"]
    (variant,) = task["variants"]
    assert task["task"] == "camera"
    assert task["model"] == "null:preprocess=0.1;inference=0.4;decode=0.2"
    assert (task["deadline_ms"], task["period_ms"]) == (25.0, 50.0)
    assert variant["variant"] == "full@null"
    assert variant["accuracy"] == 1.0
    assert list(variant["stages"]) == ["preprocess", "inference", "decode"]
    assert variant["time_ms"]["count"] == 6
    assert 0.7 <= variant["time_ms"]["p50"] <= variant["time_ms"]["max"]
    assert report["clocks"]["measured"] == report["clocks"]["kept"] == 1
    assert report["clocks"]["time_error"] is None
    assert report["interference"] == [1.0]
    assert not report["power_measured"]
    for text in ("comparing camera full@null", "measuring 0 of 6", "camera  full@null", "1 W"):
        assert text in errors
    file = load_tables(output)
    (table,) = file.tables
    assert (table.task, table.variants) == ("camera", ("full@null",))
    assert (table.deadline_ns, table.period_ns) == (25_000_000, 50_000_000)
    assert table.times_ns.shape == (1, 3, 6)
    assert (table.times_ns[0].min(axis=1) >= [100_000, 400_000, 200_000]).all()
    assert len(file.clocks) == 1
    assert file.notes["frames"] == f"images:{tmp_path / 'images'}"
    assert file.notes["machine"]["cpu"]
    assert file.notes["tasks"] == report["tasks"]


@pytest.mark.parametrize(("per", "shown"), [("model", False), ("stage", True)])
def test_people_get_a_table(tmp_path, profile, per, shown):
    output = tmp_path / "t.json"
    code, text, _ = profile(f"--runs 3 --per {per} --output {output}", people=True)
    assert code == 0
    lines = text.splitlines()
    assert lines[0].split()[:6] == ["task", "variant", "p50", "ms", "p99", "ms"]
    assert "full@null" in lines[2]
    assert "1 of 1 configurations measured" in lines[3]
    assert lines[-1].endswith(f"written to {output}")
    assert ("preprocess" in text) is shown


def test_beside_a_load_and_beside_the_cohort(tmp_path, profile):
    output = tmp_path / "tables.json"
    code, report, errors = profile(f"--runs 4 --interference cpu,cohort:3 --output {output}")
    assert code == 0
    assert len(report["interference"]) == 3
    assert report["interference"][0] == 1.0
    assert min(report["interference"]) >= 1.0
    beside = report["tasks"][0]["variants"][0]["beside_load"]
    assert 0.0 < beside["p50"] <= 1000.0
    assert load_tables(output).interference == tuple(report["interference"])
    assert "beside a load on every core" in errors
    assert "side by side, 1 to 3: 1.00" in errors


@pytest.fixture
def board(profile, monkeypatch):
    """A TX2 whose truth is known; its clock is the one that measures."""
    board = FakeBoard(tx2_space())
    monkeypatch.setattr("jetson_dnn_rt.platforms.detect.detect", lambda **options: board)
    monkeypatch.setattr("jetson_dnn_rt.clock.SteadyClock", lambda: board)
    return board


def test_a_sample_of_a_tx2_becomes_tens_of_configurations(board, tmp_path, profile):
    pytest.importorskip("scipy")
    output = tmp_path / "tables.json"
    code, report, errors = profile(
        f"--model net={MODEL} --runs 12 --clocks sample --output {output}"
    )
    assert code == 0
    assert len(set(board.applied)) == 50
    assert board.closed == 1  # the clocks come back
    assert report["clocks"]["measured"] == 50
    assert report["clocks"]["configurations"] == 11_760
    assert 10 < report["clocks"]["kept"] < 100
    assert report["clocks"]["time_error"]["points"] == 50
    assert report["clocks"]["time_error"]["max"] < 1e-3
    assert 0.0 < report["clocks"]["power_error"]["p95"] < 0.15
    assert "predicted power: off by" in errors
    file = load_tables(output)
    assert file.power_measured
    assert len(file.clocks) == report["clocks"]["kept"]
    (table,) = file.tables
    np.testing.assert_allclose(table.slowdown[0], board.slowdown[file.clocks.indices].T, rtol=1e-3)
    assert table.times_ns.shape == (1, 3, 12)
    assert table.times_ns[0, :, 0].tolist() == list(SCRIPT_NS)


def test_listed_clocks_are_measured_as_they_are(board, tmp_path, profile):
    output = tmp_path / "tables.json"
    code, report, _ = profile(
        f"--model net={MODEL} --runs 3 --clocks slowest,MAXQ,MAXN,4321 --output {output}"
    )
    assert code == 0
    clocks = load_tables(output).clocks
    max_q = board.mode_index("MAXQ")
    assert set(clocks.indices.tolist()) == {0, max_q, 11_759, 4321}
    assert clocks.indices[clocks.max_q] == max_q
    assert clocks.indices[clocks.max_n] == clocks.indices[-1] == 11_759
    assert board.applied[:4] == [0, max_q, 11_759, 4321]
    assert report["clocks"]["time_error"] is None
    variant = report["tasks"][0]["variants"][0]
    true = np.array(SCRIPT_NS) @ board.slowdown[0] / sum(SCRIPT_NS)
    assert variant["slowest_clocks"] == pytest.approx(true, rel=1e-4)
    assert variant["power_w"] == pytest.approx(board.power_now[-1], rel=1e-4)


def test_present_clocks_are_not_written(profile, monkeypatch):
    asked: list[bool] = []

    def detect(*, allow_writes, **options):
        asked.append(allow_writes)
        return UnknownPlatform()

    monkeypatch.setattr("jetson_dnn_rt.platforms.detect.detect", detect)
    assert profile("--runs 2")[0] == 0
    assert asked == [False]


@pytest.mark.slow
def test_built_variants_of_a_builtin_model(tmp_path, profile):
    """The built-in segmenter in full and decomposed, as `compress` and `build` leave it."""
    pytest.importorskip("torch")
    options = (
        f"--model builtin:segmenter --engine-cache {tmp_path / 'library'} --ranks macs:0.5 "
        "--frames synthetic:2 --frames-limit 4 --keep-slower --backend torch"
    )
    assert main.main(["compress", *options.split()]) == 0
    output = tmp_path / "tables.json"
    names = "full@torch-fp32,tucker-0.50@torch-fp32,svd-0.50@torch-fp32"
    code, report, errors = profile(
        f"--model builtin:segmenter --variants {names} --runs 4 --frames synthetic:3 --stages 3 "
        f"--engine-cache {tmp_path / 'library'} --output {output}"
    )
    assert code == 0
    (task,) = report["tasks"]
    assert task["task"] == "segmenter"
    assert [v["variant"] for v in task["variants"]] == names.split(",")[:2]
    assert list(task["left_out"]) == ["svd-0.50@torch-fp32"]
    assert "is not in the library" in errors
    full, reduced = task["variants"]
    assert full["accuracy"] == 1.0
    assert 0.3 < reduced["accuracy"] < 1.0
    assert reduced["agreement"]["reference"] == "full@torch-fp32"
    assert reduced["agreement"]["frames"] == 64
    (table,) = load_tables(output).tables
    assert table.stages == ("preprocess", "inference-1", "inference-2", "inference-3", "decode")
    assert table.loss[1, 0] == table.loss[1, -1] == 0.0
    assert (table.loss[1, 1:-1] > 0.0).all()
    assert table.accuracy(1) == pytest.approx(reduced["accuracy"])
    # What content changes is in the samples: four frames, not one four times.
    assert table.times_ns.shape == (2, 5, 4)


def test_finest_stages_are_measured_one_by_one(profile):
    pytest.importorskip("openvino")
    code, report, _ = profile(
        "--model builtin:segmenter --variants full@openvino-fp32 --runs 3 --frames synthetic:3 "
        "--stages 8 --finest-stages"
    )
    assert code == 0
    stages = report["tasks"][0]["variants"][0]["stages"]
    times = [figures["p50"] for name, figures in stages.items() if name.startswith("inference")]
    # The time of one run over several stages would be split evenly.
    assert len(times) == 8
    assert all(abs(a - b) > 1e-5 for a, b in itertools.pairwise(times))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--frames tape:1", "frames 'tape:1' are not known"),
        ("--model nonsense:1", "model 'nonsense:1' is unknown"),
        ("--model a=null:1 --model a=null:2", "task a is there twice"),
        ("--model A-b=null:1", "'A-b' cannot be the name of a task"),
        ("--variants fast", "variant 'fast' must look like"),
        ("--variants full@tvm-fp16 --amp-lists missing.yaml", "missing.yaml"),
        ("--variants full@null,full@null", "a name appears twice"),
        ("--deadline other=3", "--deadline other: the tasks are"),
        ("--output /none/tables.json", "there is no folder for it"),
        ("--clocks sample", "its clocks are unknown; fix: leave them with --clocks current"),
        ("--clocks MAXN", "its clocks are unknown; fix: leave them with --clocks current"),
        ("--engine-cache /proc/cpuinfo", "is not a folder"),
    ],
)
def test_bad_configuration_is_exit_code_2(options, text, profile):
    code, report, errors = profile(f"--runs 2 {options}")
    assert (code, report) == (2, None)
    assert text in errors.splitlines()[-1]


@pytest.mark.parametrize("clocks", ["11760", "fast", "-1", "MAXN,15W", ""])
def test_unknown_clocks(clocks, board, profile):
    code, _, errors = profile(f"--model {MODEL} --clocks={clocks}")
    assert code == 2
    last = errors.splitlines()[-1]
    assert "neither slowest, fastest nor a number below 11760" in last
    assert "MAXN, MAXQ" in last
    assert board.applied == []
    assert board.closed == 1


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--model null:1 --runs 0",
        "--model null:1 --interference tpu",
        "--model null:1 --interference memory:2",
        "--model null:1 --interference cohort:1",
        "--model null:1 --interference cohort:99",
        "--model null:1 --per operator",
        "--model null:1 --cold -1",
        "--model null:1 --rate 0",
        "--model null:1 --stages -1",
    ],
)
def test_bad_arguments_are_exit_code_2(options, capsys):
    with pytest.raises(SystemExit) as caught:
        main.main(["profile", *options.split()])
    assert caught.value.code == 2
    assert "profile: error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "task"),
    [
        ("builtin:detector", "detector"),
        ("onnx:/models/YOLOX-Tiny.onnx", "yolox_tiny"),
        ("torchvision:resnet50", "resnet50"),
        ("null:2", "task_2"),
        ("rear=onnx:/a=b.onnx", "rear"),
        ("onnx:/a=b.onnx", "a_b"),
    ],
)
def test_a_task_is_named_after_its_model(model, task):
    assert name_tasks([model]) == {task: model.removeprefix("rear=")}
