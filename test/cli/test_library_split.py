# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`library list` shows choices of `threads: auto`, `library prune --kind split` drops them."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from library_entries import FACTS, FILES, make_key

from jetson_dnn_rt.cli import main
from jetson_dnn_rt.platforms.machine import describe_cpu
from jetson_dnn_rt.runtime.sharing.core_split import share_cores
from jetson_dnn_rt.runtime.sharing.split_choice import SPLIT, Comparison, SplitChoice
from jetson_dnn_rt.variants.library.library import EntryKey, Library

MS = 1_000_000
PLANNED = share_cores(2, 2)
KEY = EntryKey("a" * 64, "b" * 64, SPLIT, SPLIT, device=describe_cpu(), options="form=1")
CHOICE = SplitChoice(
    PLANNED,
    {"detector": 20 * MS},
    {"detector": 15 * MS},
    (Comparison(PLANNED.wide, PLANNED, True, 12, 11, 1, 0.5, 0.75),),
    date="2026-11-29T12:00:00+00:00",
)


@pytest.fixture
def library(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = Library()
    library.store(KEY, {}, asdict(CHOICE), model="builtin:detector + builtin:segmenter")
    library.store(make_key(kind="weights", backend="", device=""), FILES, FACTS)
    return library


def run(capsys, *arguments):
    assert main.main(["library", *arguments]) == 0
    return capsys.readouterr().out


def test_list_shows_the_choice_with_what_decided(library, capsys):
    text = run(capsys, "list")
    (row,) = [line for line in text.splitlines() if line.startswith("builtin:detector + ")]
    assert row.split()[3:6] == ["split", "split", "ok"]
    assert (
        "1 x 2 or 2 x 1 (workers x threads): 1 x 2 meets 50.0 %, 1 x 2 or 2 x 1 75.0 % of the "
        "frames (more in 11, fewer in 1 of 12 rounds): decided for 1 x 2 or 2 x 1; at detector "
        "50.0 Hz within 15.0 ms"
    ) in text
    listed = json.loads(run(capsys, "list", "--json").splitlines()[-1])["entries"]
    assert {entry["kind"]: bool(entry["split"]) for entry in listed} == {
        SPLIT: True,
        "weights": False,
    }


def test_list_says_why_a_choice_cannot_be_used(library, capsys):
    facts = {**asdict(CHOICE), "comparisons": []}
    library.store(KEY, {}, facts, model="builtin:detector + builtin:segmenter")
    text = run(capsys, "list")
    assert "unusable" in text
    assert "split.comparisons must have what decided" in text


def test_prune_of_a_kind_takes_all_of_it_and_nothing_else(library, capsys):
    assert "of kind split" in run(capsys, "prune", "--kind", "split", "--dry-run")
    assert len(library.entries()) == 2
    run(capsys, "prune", "--kind", "split")
    (left,) = library.entries()
    assert left.header.key.kind == "weights"


def test_a_choice_of_another_machine_is_stale(library, capsys):
    library.store(make_key(kind=SPLIT, backend="", device="another CPU"), {}, asdict(CHOICE))
    text = run(capsys, "prune")
    assert "made for another CPU, which is not here" in text
    assert len(library.entries()) == 2
