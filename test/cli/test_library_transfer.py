# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`library export` and `library import` as scripts see them."""

from __future__ import annotations

import json

import pytest
from library_entries import FACTS, FILES, make_key

from jetson_dnn_rt.cli import main
from jetson_dnn_rt.variants.library.library import Library

TUNING = make_key(
    kind="tuning", decomposition="full", backend="tvm", precision="fp32", device="",
    backend_version="0.27.0.post1", options="llvm aarch64-linux-gnu cortex-a78ae threads=1",
)  # fmt: skip


@pytest.fixture
def library(tmp_path):
    """Of two models: a tuning database, code, an engine, weights."""
    library = Library(tmp_path / "here")
    library.store(TUNING, FILES, FACTS, model="builtin:detector")
    code = make_key(backend="tvm", kind="artefact", decomposition="full", precision="fp32")
    for key in (code, make_key(kind="artefact"), make_key(kind="weights", backend="")):
        library.store(key, FILES, FACTS, model="builtin:detector")
    other = make_key(kind="weights", backend="", model_hash="c" * 64)
    library.store(other, FILES, FACTS, model="builtin:segmenter")
    return library


def run(capsys, *arguments):
    code = main.main(["library", *arguments, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out.splitlines()[-1]) if out else {}


def test_everything_but_machine_code_goes_round(library, tmp_path, capsys):
    file, here = str(tmp_path / "all.tar"), ["--engine-cache", str(library.root)]
    code, sent = run(capsys, "export", file, *here)
    assert code == 0
    left_out = [entry["kind"] for entry in sent["written"] if entry["left_out"]]
    assert left_out == ["artefact", "artefact"]
    there = ["--engine-cache", str(tmp_path / "there")]
    code, taken = run(capsys, "import", file, "--trust", *there)
    assert code == 0
    assert sorted((entry["model"], entry["kind"]) for entry in taken["taken"]) == [
        ("builtin:detector", "tuning"),
        ("builtin:detector", "weights"),
        ("builtin:segmenter", "weights"),
    ]
    assert Library(tmp_path / "there").load(TUNING) is not None
    # A second time they are there; for people it is said in words.
    assert main.main(["library", "import", file, "--trust", *there]) == 0
    out = capsys.readouterr().out
    assert out.count("left out: the library has it; --replace takes this one instead") == 3
    assert "0 of 3 entries" in out
    _, again = run(capsys, "import", file, "--replace", "--trust", *there)
    assert [entry["left_out"] for entry in again["taken"]] == ["", "", ""]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--kind", "tuning"], [("builtin:detector", "tuning")]),
        (["--model", "builtin:segmenter"], [("builtin:segmenter", "weights")]),
        (["--variant", "full@tvm-fp32", "--kind", "tuning"], [("builtin:detector", "tuning")]),
    ],
)
def test_only_what_is_named_goes(library, tmp_path, capsys, options, found):
    where = [str(tmp_path / "some.tar"), "--engine-cache", str(library.root)]
    _, sent = run(capsys, "export", *where, *options)
    assert [(entry["model"], entry["kind"]) for entry in sent["written"]] == found


def test_nothing_to_export_is_exit_code_1(library, tmp_path, capsys):
    where = [str(tmp_path / "none.tar"), "--engine-cache", str(library.root)]
    code, sent = run(capsys, "export", *where, "--model", "builtin:nothing")
    assert (code, sent["written"]) == (1, [])


def test_a_file_that_is_refused_is_exit_code_2(tmp_path, capsys):
    file = tmp_path / "bad.tar"
    file.write_bytes(b"no archive" * 200)
    where = ["--engine-cache", str(tmp_path)]
    assert main.main(["library", "import", str(file), "--trust", *where]) == 2
    assert "bad.tar is refused" in capsys.readouterr().err


def test_a_library_is_taken_only_when_it_is_trusted(library, tmp_path, capsys):
    """EDGES 2, 12: a tuning database decides what code is made, so a library is code."""
    file, there = str(tmp_path / "all.tar"), ["--engine-cache", str(tmp_path / "there")]
    run(capsys, "export", file, "--engine-cache", str(library.root))
    assert main.main(["library", "import", file, *there]) == 2
    said = capsys.readouterr().err
    assert "a library is trusted code" in said
    assert "--trust" in said
    assert not (tmp_path / "there").exists()
