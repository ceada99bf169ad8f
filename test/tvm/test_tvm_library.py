# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tuned kernels in the library: kept, gone on with, copied, refused; and never run untuned."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import torch
from tuned_kernels import TRIALS, VARIANT, Tiny, list_parts, make_tiny, open_variant, run, tune

from jetson_dnn_rt.errors import BackendUnavailableError, NotBuiltError
from jetson_dnn_rt.models.graph.batched_part import BatchedPart
from jetson_dnn_rt.tvm import compile as tvm_compile
from jetson_dnn_rt.tvm import library as tvm_library
from jetson_dnn_rt.tvm import measuring as tvm_measuring
from jetson_dnn_rt.tvm.database import TuningDatabase
from jetson_dnn_rt.tvm.library import TvmVariant
from jetson_dnn_rt.tvm.target import TvmTarget
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.library.transfer import export_entries, import_entries
from jetson_dnn_rt.variants.running import variant_set
from jetson_dnn_rt.variants.running.engines import TuningOptions, make_runner
from jetson_dnn_rt.variants.spec import VariantSpec

BOARD = TvmTarget("llvm", "cortex-a78ae", "aarch64-linux-gnu")


@pytest.fixture(scope="module")
def model():
    return make_tiny()


@pytest.fixture(scope="module")
def tuned(model, tmp_path_factory):
    """A library with the network tuned, whole and in two stages; what was told meanwhile."""
    folder, told = tmp_path_factory.mktemp("tuned"), []
    library = Library(folder)
    variant = open_variant(model, library, tuning=TuningOptions(TRIALS, 60.0))
    variant.prepare(list_parts(model, library, 2), lambda *step: told.append(step))
    return folder, told


@pytest.fixture
def library(tuned, tmp_path):
    """A copy of that library, of the test's own."""
    shutil.copytree(tuned[0], tmp_path / "library")
    return Library(tmp_path / "library")


@pytest.fixture
def empty(tmp_path):
    return Library(tmp_path / "empty")


@pytest.fixture
def measured(monkeypatch):
    """How many candidates were compiled and timed, batch by batch."""
    counts: list[int] = []
    measure = tvm_measuring.Measurer.measure

    def count(self, modules, *arguments):
        counts.append(len(modules))
        return measure(self, modules, *arguments)

    monkeypatch.setattr(tvm_measuring.Measurer, "measure", count)
    return counts


def make(model, part, library, **options):
    spec = VariantSpec.parse(VARIANT)
    return make_runner(model, spec, part, threads=1, library=library, **options)


def find(library, kind):
    headers = [listing.header for listing in library.entries() if listing.header is not None]
    return [h for h in headers if h.key.kind == kind and h.key.backend == "tvm"]


def copy_tuning(source, target, folder):
    """What a user does who has two boards of one kind."""

    def is_tuning(listing):
        return listing.header is not None and listing.header.key.kind == "tuning"

    assert [t.reason for t in export_entries(source, folder / "one.tar", is_tuning)] == [""]
    assert [t.reason for t in import_entries(target, folder / "one.tar")] == [""]


def test_tuned_once_it_runs_whole_and_in_stages(model, library, measured):
    whole, first, second = list_parts(model, library, 2)
    output = run(make(model, whole, library, build=False))
    image = np.random.default_rng(0).random((1, 3, 16, 16), np.float32)
    with torch.no_grad():
        expected = Tiny().eval()(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-6)
    one, other = (make(model, part, library, build=False) for part in (first, second))
    boundary = one.run([image])[0]
    np.testing.assert_allclose(other.run([boundary])[0], expected, rtol=1e-4, atol=1e-6)
    assert (one.backend, one.precision, one.device) == ("tvm", "fp32", "cpu")
    assert measured == []
    (header,) = find(library, "tuning")
    facts = header.facts
    assert header.key.options == facts["target"] == open_variant(model, library).target.text
    assert facts["tuned"] == facts["kernels"] >= 2
    assert facts["trials"] >= facts["kernels"]
    assert facts["seconds"] > 0
    assert len(facts["parts"]) == len(find(library, "artefact")) == 3


def test_what_was_tuned_is_not_tuned_again(model, library, measured):
    parts = list_parts(model, library, 2)
    variant, larger = (
        open_variant(model, library, tuning=TuningOptions(trials))
        for trials in (TRIALS, TRIALS + 2)
    )
    assert variant.is_built(parts)
    before = {header.created for header in find(library, "artefact")}
    tune(model, library, parts)
    assert measured == []
    assert {header.created for header in find(library, "artefact")} == before
    # A larger budget is another matter: it goes on, and compiles what came of it.
    assert not larger.is_built(parts[:1])
    trials = variant.compiled_trials(parts[0])
    tune(model, library, parts[:1], TRIALS + 2)
    assert sum(measured) == variant.compiled_trials(parts[0]) - trials > 0
    assert larger.is_built(parts[:1])


def test_untuned_kernels_are_never_run(model, empty, measured):
    with pytest.raises(NotBuiltError, match="not in the library: run jetson-dnn-rt build"):
        make(model, model, empty, build=False)
    with pytest.raises(BackendUnavailableError, match="run jetson-dnn-rt build"):
        make(model, model, None)
    compiling_only = TuningOptions(TRIALS, tunes=False)
    with pytest.raises(
        BackendUnavailableError, match=r"0 of \d kernels .* a machine that does nothing else"
    ):
        make(model, model, empty, tuning=compiling_only)
    assert measured == []
    assert find(empty, "artefact") == []


def test_nobody_takes_tvm_unasked(model, monkeypatch):
    monkeypatch.setattr(variant_set, "is_installed", lambda name: name == "tvm")
    with pytest.raises(BackendUnavailableError, match="no back end is installed"):
        variant_set.choose_default(model)


def test_when_time_is_over_the_figures_are_said(model, empty):
    tuning = TuningOptions(TRIALS, minutes=1e-9)
    with pytest.raises(
        BackendUnavailableError, match=r"0 of \d kernels are tuned.*raise tvm_trials or"
    ):
        make(model, model, empty, tuning=tuning)
    with pytest.raises(NotBuiltError):
        make(model, model, empty, build=False)


def test_interrupted_tuning_goes_on_where_it_was(model, empty, measured):
    variant = open_variant(model, empty, tuning=TuningOptions(TRIALS))
    for number in (signal.SIGINT, signal.SIGTERM):
        before, known = signal.getsignal(number), sum(measured)

        def interrupt(phase, done, total, number=number, before=before, known=known):
            # Once: a second one ends the process, as users who have no time expect.
            if sum(measured) > known and signal.getsignal(number) is not before:
                os.kill(os.getpid(), number)

        with pytest.raises(KeyboardInterrupt):
            variant.tune([model], interrupt)
        assert signal.getsignal(number) is before
        (header,) = find(empty, "tuning")
        assert header.facts["trials"] == sum(measured) > known
        with pytest.raises(NotBuiltError):
            make(model, model, empty, build=False)

    tune(model, Library(empty.root), [model])
    (header,) = find(empty, "tuning")
    # Nothing was measured twice: together they are what one uninterrupted run measures.
    assert header.facts["trials"] == sum(measured)
    database = variant.load_database()
    assert database is not None
    assert max(database._trials.values()) <= TRIALS
    measured.clear()
    assert run(make(model, model, empty, build=False)).shape == (1, 5)
    assert measured == []


def test_progress_tells_the_trials_of_this_time(tuned):
    tuning = [step for step in tuned[1] if step[0] == "tuning test:network for at most 60 min"]
    assert tuning[0][1] == 0
    assert tuning[-1][1] == tuning[-1][2] > 0
    assert [done for _, done, _ in tuning] == sorted(done for _, done, _ in tuning)


def test_a_database_goes_to_another_board_of_the_same_kind(
    model, library, empty, tmp_path, measured
):
    copy_tuning(library, empty, tmp_path)
    with pytest.raises(NotBuiltError, match="not in the library"):
        make(model, model, empty, build=False)
    tuning = TuningOptions(TRIALS, tunes=False)
    copied = run(make(model, model, empty, tuning=tuning))
    assert measured == []
    np.testing.assert_array_equal(copied, run(make(model, model, library, build=False)))
    assert open_variant(model, empty, tuning=TuningOptions(TRIALS)).is_built([model])


def test_a_database_for_another_target_is_refused(model, empty, measured, caplog):
    board = TvmVariant(model, VariantSpec.parse(VARIANT), threads=1, library=empty, target=BOARD)
    board.store_database(TuningDatabase(BOARD))
    here = open_variant(model, empty)
    with pytest.raises(NotBuiltError) as caught:
        make(model, model, empty, build=False)
    assert f"there is a tuning database for {BOARD.text}, which is not used" in str(caught.value)
    assert f"here is {here.target.text}" in str(caught.value)
    compiling_only = TuningOptions(TRIALS, tunes=False)
    with pytest.raises(BackendUnavailableError), caplog.at_level(logging.WARNING):
        make(model, model, empty, tuning=compiling_only)
    assert f"there is a tuning database for {BOARD.text}, which is not used" in caplog.text
    # Under this machine's name it is no better: the file itself says what it is for.
    (header,) = find(empty, "tuning")
    entry = empty.load(header.key)
    assert entry is not None
    empty.store(here._tuning_key, entry.files, entry.facts)
    with caplog.at_level(logging.WARNING):
        assert here.load_database() is None
    assert f"is for the target {BOARD.text}, here is {here.target.text}" in caplog.text
    with pytest.raises(NotBuiltError):
        make(model, model, empty, build=False)
    assert measured == []


def test_without_a_linker_code_is_made_at_every_start(
    model, library, empty, tmp_path, monkeypatch, caplog
):
    expected = run(make(model, model, library, build=False))
    copy_tuning(library, empty, tmp_path)
    monkeypatch.setattr(tvm_compile, "find_linker", lambda: "")
    monkeypatch.setattr(tvm_library, "_logged", set())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            np.testing.assert_array_equal(run(make(model, model, empty, build=False)), expected)
    assert caplog.text.count("sudo apt install g++") == 1
    assert find(empty, "artefact") == []
    assert open_variant(model, empty, tuning=TuningOptions(TRIALS)).is_built([model])


def test_code_that_does_not_load_is_made_anew(model, library, measured, caplog):
    expected = run(make(model, model, library, build=False))
    variant = open_variant(model, library)
    library.store(variant._code_key(model), {"kernels.so": b"no library"}, {})
    with pytest.raises(NotBuiltError), caplog.at_level(logging.WARNING):
        make(model, model, library, build=False)
    assert "cannot be loaded by TVM" in caplog.text
    tuning = TuningOptions(TRIALS, tunes=False)
    np.testing.assert_array_equal(run(make(model, model, library, tuning=tuning)), expected)
    np.testing.assert_array_equal(run(make(model, model, library, build=False)), expected)
    assert measured == []


def test_lists_of_fp16_make_other_code_of_the_same_kernels(model, empty, tmp_path):
    file = tmp_path / "amp.yaml"
    file.write_text("allow: [Conv]\nfollow: [Relu]\ndeny: []\n")
    spec = VariantSpec.parse("full@tvm-fp16")
    plain, own = (
        TvmVariant(model, spec, threads=1, library=empty, tuning=TuningOptions(amp_lists=lists))
        for lists in ("", str(file))
    )
    assert plain._tuning_key == own._tuning_key
    assert plain._code_key(model) != own._code_key(model)
    assert plain.id_of(model) != own.id_of(model)
    # They are for FP16 alone.
    file.write_text("nonsense")
    first, second = (
        open_variant(model, empty, tuning=TuningOptions(amp_lists=lists))._code_key(model)
        for lists in ("", str(file))
    )
    assert first.options == second.options


def test_batches_are_refused(model, library):
    with pytest.raises(BackendUnavailableError, match="tvm runs one image at a time"):
        make(model, BatchedPart(model, 2), library)


def test_without_tvm_the_install_line_is_said(model, library, monkeypatch):
    monkeypatch.setitem(sys.modules, "tvm", None)
    for build in (True, False):
        with pytest.raises(BackendUnavailableError, match=r"pip install apache-tvm==0\.27"):
            make(model, model, library, build=build)
