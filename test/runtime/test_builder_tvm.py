# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`build` tunes, compiles and measures TVM's variants; for another board it only tunes."""

from __future__ import annotations

import logging

import cv2
import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

from tuned_kernels import SIZE, TRIALS, VARIANT, make_tiny

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.runtime.building import builder as building
from jetson_dnn_rt.runtime.building.builder import BuildSettings, TaskBuilder, TaskPlan
from jetson_dnn_rt.tvm import measuring as tvm_measuring
from jetson_dnn_rt.tvm import tuning as tvm_tuning
from jetson_dnn_rt.tvm.target import TvmTarget, find_local_target
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.running.variant_set import VariantSet
from jetson_dnn_rt.variants.spec import VariantSpec

TORCH = VariantSpec("full", "torch")
SPEC = VariantSpec.parse(VARIANT)


@pytest.fixture(scope="module")
def model():
    return make_tiny()


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frames")
    for seed in range(3):
        image = np.random.default_rng(seed).integers(0, 256, (*SIZE, 3), np.uint8)
        cv2.imwrite(str(folder / f"{seed}.png"), image)
    return f"images:{folder}"


@pytest.fixture(autouse=True)
def torch_is_the_default(monkeypatch):
    monkeypatch.setattr(building, "choose_default", lambda model: TORCH)


def build(model, library, frames, stages=1, tunes=True, rpc=""):
    config = TaskConfig(
        "task", variants=(VARIANT,), stages=stages, tvm_trials=TRIALS, tvm_minutes=0.0, tvm_rpc=rpc
    )
    plan = TaskPlan(config, model, 1, tunes=tunes)
    builder = TaskBuilder(plan, library, BuildSettings(frames, runs=3), SteadyClock())
    return {spec: builder.build(spec) for spec in builder.order}


def kinds(library):
    headers = [listing.header for listing in library.entries() if listing.header is not None]
    return {header.key.kind for header in headers if header.key.backend == "tvm"}


def test_tuned_compiled_and_measured_once(model, tmp_path, frames, monkeypatch):
    library = Library(tmp_path / "library")
    report = build(model, library, frames, 2)[SPEC]
    assert (report.state, report.reason, report.fresh) == ("built", "", True)
    assert report.measurement.agreement.value == 1.0
    assert kinds(library) == {"tuning", "artefact", "measurement"}

    monkeypatch.setattr(tvm_measuring.Measurer, "measure", pytest.fail)
    again = build(model, library, frames, 2)[SPEC]
    assert (again.state, again.fresh) == ("present", False)
    # Whatever cover its timing chooses, a node finds all of it.
    variants = VariantSet(TaskConfig(variants=(VARIANT,), stages=2), model, library=library)
    assert list(variants.pipelines) == [VARIANT]
    variants.close()


def test_what_may_not_be_tuned_fails_with_what_to_do(model, tmp_path, frames, caplog):
    """So it is in the background of a node, whose tasks would be measured and not the kernels."""
    library = Library(tmp_path / "library")
    with caplog.at_level(logging.ERROR):
        report = build(model, library, frames, tunes=False)[SPEC]
    assert (report.state, report.measurement) == ("failed", None)
    assert "run jetson-dnn-rt build" in report.reason
    assert kinds(library) == set()


def test_for_another_kind_of_machine_it_only_tunes(model, tmp_path, frames, monkeypatch):
    """The board is a plain x86-64, whose code this machine happens to run; RPC is left out."""
    machine = find_local_target(1).triple
    if not machine.startswith("x86_64"):
        pytest.skip("plain x86-64 code does not run here")
    board = TvmTarget("llvm", "x86-64", machine)
    addresses: list[str] = []

    def measure(address, target):
        addresses.append(address)
        return tvm_measuring.Measurer(target)

    monkeypatch.setattr(tvm_measuring, "find_remote_target", lambda address, threads: board)
    monkeypatch.setattr(tvm_tuning, "RpcMeasurer", measure)
    library = Library(tmp_path / "library")
    report = build(model, library, frames, rpc="board:9090")[SPEC]
    assert (report.state, report.reason, report.measurement) == ("tuned", "", None)
    assert kinds(library) == {"tuning"}
    assert set(addresses) == {"board:9090"}
    (key,) = [
        listing.header.key
        for listing in library.entries()
        if listing.header is not None and listing.header.key.kind == "tuning"
    ]
    assert key.options == board.text
    # It goes on, and has nothing left to do.
    monkeypatch.setattr(tvm_measuring.Measurer, "measure", pytest.fail)
    assert build(model, library, frames, rpc="board:9090")[SPEC].state == "tuned"


def test_nobody_answers(model, tmp_path, frames):
    report = build(model, Library(tmp_path), frames, rpc="127.0.0.1:1")[SPEC]
    assert report.state == "failed"
    assert "no RPC server answers at 127.0.0.1:1" in report.reason
    assert "tvm.exec.rpc_server" in report.reason
