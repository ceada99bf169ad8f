# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""No coordinator runs a variant that agrees too little with the full model, however fast it is.

A recording is evaluated in real time under `horizon`, with the library that `build` wrote.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import cv2
import numpy as np
import pytest
from cohort_tables import make_table, write_tables

from jetson_dnn_rt.cli.main import main
from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.basis import load_basis
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.agreement import Agreement
from jetson_dnn_rt.variants.measuring.measurement import TimeDistribution, Trial, make_measurement
from jetson_dnn_rt.variants.measuring.store import (
    AGREEMENT_FACT,
    READING_FACT,
    hash_network,
    measurement_key,
    store_measurement,
)
from jetson_dnn_rt.variants.spec import DecompositionSpec, VariantSpec

FULL, SMALL = "full@openvino-fp32", "tucker-0.50@openvino-fp32"
FIXED = "stages: 1\n    threads: 1"


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A user's folder with an empty home."""
    for package in ("torch", "openvino", "pyarrow"):
        pytest.importorskip(package)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(user, capsys):
    """Runs a command; exit code, JSON of the last line, and stderr."""

    def execute(*arguments):
        code = main([*arguments, "--json"])
        captured = capsys.readouterr()
        lines = captured.out.splitlines()
        return code, json.loads(lines[-1]) if lines else None, captured.err

    return execute


def write_parameters(model, variant, frames, more=""):
    with open("robot.yaml", "w", encoding="utf-8") as file:
        file.write(
            "/**/perception:\n  ros__parameters:\n    tasks: [detector]\n"
            "/**/coordinator:\n  ros__parameters:\n    policy: horizon\n    mode: min_energy\n"
            "/**/detector:\n  ros__parameters:\n"
            f"    model: {model}\n    variants: [{FULL}, {variant}]\n    build_missing: false\n"
            f"    build_frames: {frames}\n    deadline_ms: 200.0\n    {FIXED}\n{more}"
        )


def evaluate(run, frames):
    """The variants that ran under the coordinator, and the log."""
    code, _, errors = run(
        "evaluate", frames, "--params", "robot.yaml", "--mode", "realtime", "--rate", "20",
        "--output", "out",
    )  # fmt: skip
    assert code == 0, errors
    with open("out/results.jsonl", encoding="utf-8") as file:
        found = {json.loads(line).get("variant") for line in file}
    shutil.rmtree("out")
    return found - {None}


@pytest.fixture
def library(user):
    """With the decomposed network of the built-in detector; frames of the road beside it."""
    from jetson_dnn_rt.demo.scenes.generator import SceneGenerator
    from jetson_dnn_rt.lab.compress.decomposition import decompose
    from jetson_dnn_rt.models.graph.splitting import split
    from jetson_dnn_rt.variants.decomposition import store_reduced

    (user / "frames").mkdir()
    drive, frame = SceneGenerator(3, (240, 320)), np.empty((240, 320, 3), np.uint8)
    for number in range(12):
        drive.render(number * 200_000_000, frame)
        cv2.imwrite(str(user / "frames" / f"{number:03}.png"), frame)
    model, library = load_model("builtin:detector"), Library()
    spec = DecompositionSpec.parse("tucker-0.50")
    graph, decomposition = decompose(split(model, 1).graph, model.input_shape, spec)

    def store(agreement):
        facts = {READING_FACT: model.reading, AGREEMENT_FACT: agreement.__dict__}
        store_reduced(library, model, graph, decomposition, facts)

    return model, library, store


AGREEMENTS = [
    pytest.param(0.95, 90, {FULL, SMALL}, id="enough"),
    pytest.param(0.5, 90, {FULL}, id="too little"),
    pytest.param(1.0, 0, {FULL}, id="unknown"),
]


def make_agreement(value, evidence):
    return Agreement(value, "mAP@0.5", 20, evidence, FULL)


@pytest.mark.parametrize(("value", "evidence", "expected"), AGREEMENTS)
def test_what_build_measured_decides(library, run, value, evidence, expected, caplog):
    model, kept, store = library
    store(make_agreement(0.95, 90))
    spec = VariantSpec.parse(SMALL)
    stages = [TimeDistribution.of(n, [10_000]) for n in ("preprocess", "inference", "decode")]
    measured = make_measurement(
        spec, Trial((), TimeDistribution.of("total", [30_000]), tuple(stages), 10**6, 0),
        agreement=make_agreement(value, evidence), frames="images:frames", frame_size=(240, 320),
        threads=1,
    )  # fmt: skip
    key = measurement_key(
        model, spec, hash_network(model, spec.decomposition, kept), threads=1, stages=1
    )
    store_measurement(kept, key, measured, model)
    write_parameters("builtin:detector", SMALL, "images:frames")
    ran = evaluate(run, "images:frames")
    assert ran <= expected
    # The control: the smaller network is the frugal one, and is taken where it agrees enough.
    assert (SMALL in ran) is (SMALL in expected)
    assert ("is left out" in caplog.text) is (SMALL not in expected)


@pytest.mark.parametrize(("value", "evidence", "expected"), AGREEMENTS)
def test_what_compress_compared_decides_where_build_has_not_run(
    library, run, value, evidence, expected, caplog
):
    _, _, store = library
    store(make_agreement(value, evidence))
    write_parameters("builtin:detector", SMALL, "images:frames")
    # Which one is the frugal one depends on the times of their warm-ups here and now.
    assert evaluate(run, "images:frames") <= expected
    assert ("is left out" in caplog.text) is (SMALL not in expected)
    assert "was not measured" not in caplog.text


def test_of_a_variant_that_was_never_compared_nothing_is_known(library, run, caplog):
    _, kept, _ = library
    model = load_model("builtin:detector")
    from jetson_dnn_rt.lab.compress.decomposition import decompose
    from jetson_dnn_rt.models.graph.splitting import split
    from jetson_dnn_rt.variants.decomposition import store_reduced

    spec = DecompositionSpec.parse("tucker-0.50")
    graph, decomposition = decompose(split(model, 1).graph, model.input_shape, spec)
    store_reduced(kept, model, graph, decomposition, {})
    write_parameters("builtin:detector", SMALL, "images:frames")
    assert evaluate(run, "images:frames") == {FULL}
    assert "how far it agrees with the full model is unknown" in caplog.text


def test_the_ruined_yolox_nano_never_runs(user, run, shared_data, caplog):
    """`svd-0.50` finds none of the boxes of YOLOX-nano at half the cost: built, refused, not run.

    That a faster one is not run either is `test_what_build_measured_decides`, with given times.
    """
    model = f"onnx:{shared_data / 'models/yolox_nano.onnx'}"
    small = "svd-0.50@openvino-fp32"
    video = cv2.VideoCapture(str(shared_data / "video/dashcam_white_right.mp4"))
    (user / "road").mkdir()
    for number in range(16):
        cv2.imwrite(str(user / "road" / f"{number:03}.png"), video.read()[1])
    write_parameters(model, small, "images:road")
    # Its ranks do not depend on what the layers take here and now.
    options = "--method svd --no-data-aware --keep-slower --least-agreement 0 --frames images:road"
    code, reduced, errors = run(
        "compress", "--model", model, "--ranks", "macs:0.5", *options.split()
    )
    assert code == 0, errors
    assert reduced["macs_reduction"] > 0.45
    code, built, errors = run("build", "--params", "robot.yaml", "--runs", "5")
    assert code == 0, errors
    found = {variant["variant"]: variant for variant in built["variants"]}
    assert found[FULL]["state"] == "present"  # compress has measured it beside the other
    assert found[small]["state"] == "refused"
    assert found[small]["agreement"]["value"] < 0.5
    assert "try: keep more of the network" in found[small]["reason"]
    assert evaluate(run, "images:road") == {FULL}
    assert f"variant {small} of {model} is left out" in caplog.text


@pytest.mark.parametrize(("least", "kept"), [(0.0, 3), (0.9, 2), (0.95, 1)])
def test_of_tables_in_files_what_agrees_too_little_is_not_used(tmp_path, caplog, least, kept):
    whole = make_table()
    loss = np.array([[0.0, 0.0], [0.05, 0.05], [0.5, 0.317]])
    table = replace(
        whole,
        stages=whole.stages[:2],
        variants=("full@null", "tucker-0.50@null", "svd-0.50@null"),
        times_ns=np.repeat(whole.times_ns[:1, :2], 3, axis=0),
        slowdown=np.ones((3, 2, 1)),
        power_w=np.ones((3, 2, 1)),
        loss=loss,
    )
    files = (write_tables(tmp_path, table),)
    basis = load_basis(CoordinatorConfig(tables=files, least_agreement=least))
    basis.platform.close()
    found = basis.tables["detector"]
    assert found.variants == table.variants[:kept]
    assert [found.accuracy(v) for v in range(kept)] == pytest.approx([1.0, 0.9, 0.183][:kept])
    left_out = [record.getMessage() for record in caplog.records if "left out" in record.msg]
    assert len(left_out) == 3 - kept
    if least == 0.95:
        assert "svd-0.50@null is left out of the tables: it agrees 0.183" in left_out[1]


def test_tables_without_any_variant_that_agrees_enough_are_an_error(tmp_path):
    table = make_table()
    table = replace(table, loss=np.full(table.loss.shape, 0.3))
    with pytest.raises(ConfigurationError, match=r"no variant .* agrees 0\.9 .*fix:"):
        load_basis(CoordinatorConfig(tables=(write_tables(tmp_path, table),)))
