"""The library on disk: whole entries or none, found by what they are, by several at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from library_entries import FACTS, FILES, make_key, store

from jetson_dnn_rt.variants.library import library as library_module
from jetson_dnn_rt.variants.library.library import Library


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "cache")


def test_what_is_stored_is_found(library: Library, caplog: pytest.LogCaptureFixture) -> None:
    stored = library.store(make_key(), FILES, FACTS, model="builtin:detector")
    for each in (library, Library(library.root)):
        entry = each.load(make_key())
        assert entry is not None
        assert dict(entry.files) == FILES
        assert entry.facts == FACTS
        assert entry.key == make_key()
        assert entry.header == stored.header
        assert entry.path == stored.path
    assert not caplog.records


def test_a_person_finds_it_too(library: Library) -> None:
    path = store(library)
    relative = path.relative_to(library.root).parts
    assert relative == (
        "builtin-detector-aaaaaaaaaaaa",
        "tucker-0.50@tensorrt-fp16",
        make_key().digest,
    )
    assert {file.name for file in path.iterdir()} == {"entry.json", *FILES}
    content = json.loads((path / "entry.json").read_text())["content"]
    assert content["key"]["device"] == "NVIDIA Tegra Orin, 8.7"
    assert content["model"] == "builtin:detector"
    weights = make_key(backend="", backend_version="", device="", precision="", kind="weights")
    assert weights.variant == "tucker-0.50"


@pytest.mark.parametrize(
    ("model", "folder"),
    [
        ("", "aaaaaaaaaaaa"),
        ("onnx:/home/me/Yolo X/best model.onnx", "onnx-best-model.onnx-aaaaaaaaaaaa"),
        ("null:inference=3;decode=1,spin", "null-inference-3-decode-1-spin-aaaaaaaaaaaa"),
        ("onnx:../../..", "onnx-aaaaaaaaaaaa"),
        ("../../../etc", "etc-aaaaaaaaaaaa"),
    ],
)
def test_whatever_a_model_is_called_it_is_one_folder(
    library: Library, model: str, folder: str
) -> None:
    entry = library.store(make_key(), {}, {}, model=model)
    assert entry.path is not None
    assert entry.path.relative_to(library.root).parts[0] == folder
    assert library.load(make_key()) is not None


def test_another_name_of_the_same_model_is_the_same_model(library: Library) -> None:
    first = library.store(make_key(), FILES, {}, model="onnx:a.onnx")
    second = library.store(make_key(kind="measurement"), {}, {}, model="onnx:b.onnx")
    assert first.path is not None
    assert second.path is not None
    assert first.path.parents[1] == second.path.parents[1]


def test_nothing_is_made_before_something_is_stored(library: Library) -> None:
    assert library.load(make_key()) is None
    assert library.entries() == []
    assert library.size_bytes() == 0
    assert library.prune(unused_days=0.0) == []
    assert not library.root.exists()


def test_a_new_entry_takes_the_place_of_the_old_one(library: Library) -> None:
    store(library)
    library.store(make_key(), {"engine.plan": b"new"}, {"n": 2})
    entry = library.load(make_key())
    assert entry is not None
    assert dict(entry.files) == {"engine.plan": b"new"}
    assert entry.facts == {"n": 2}
    assert len(library.entries()) == 1
    assert list((library.root / ".tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("files", "facts", "text"),
    [
        ({"../x": b""}, {}, "no name for a file"),
        ({"a/b": b""}, {}, "no name for a file"),
        ({".hidden": b""}, {}, "no name for a file"),
        ({"entry.json": b""}, {}, "no name for a file"),
        ({"": b""}, {}, "no name for a file"),
        ({f"file{i}": b"" for i in range(257)}, {}, "at most 256"),
        ({}, {"value": float("nan")}, "not JSON compliant"),
        ({}, {"value": "x" * (4 << 20)}, "must fit"),
    ],
)
def test_what_cannot_be_an_entry_is_refused(
    library: Library, files: dict[str, bytes], facts: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        library.store(make_key(), files, facts)
    assert library.entries() == []


def test_a_file_that_is_too_large_is_refused(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_module, "MAX_FILE_BYTES", 3)
    with pytest.raises(ValueError, match="has 4 bytes, at most 3"):
        library.store(make_key(), {"a": b"1234"}, {})


_ROUNDS = 40
_STORE_AGAIN_AND_AGAIN = """
import json, sys
from pathlib import Path
from jetson_dnn_rt.variants.library.library import EntryKey, Library

library, number = Library(Path(sys.argv[1])), sys.argv[2]
key = EntryKey.from_json(json.loads(sys.argv[3]))
print("ready", flush=True)
sys.stdin.readline()
for index in range(int(sys.argv[4])):
    data = f"{number} {index}".encode() * 500
    assert library.store(key, {"a": data, "b": data[::-1]}, {}).path is not None
    found = library.load(key)
    # None for the moment in which the other one changes the entry; never a half one.
    assert found is None or found.files["a"] == found.files["b"][::-1]
"""


def test_two_processes_that_store_the_same_at_once(library: Library) -> None:
    key = json.dumps(make_key().to_json())
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                _STORE_AGAIN_AND_AGAIN,
                library.root,
                str(n),
                key,
                str(_ROUNDS),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    # `communicate` would start one after the other.
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=60)
        # Nothing is reported either: no half entry was seen, and every store found its place.
        assert (process.returncode, errors) == (0, "")
    entry = library.load(make_key())
    assert entry is not None
    assert entry.files["a"].endswith(f" {_ROUNDS - 1}".encode())
    assert [listing.problem for listing in library.entries()] == [""]
    assert list((library.root / ".tmp").iterdir()) == []


def test_a_reader_that_is_overtaken_reads_the_new_entry(
    library: Library, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store(library)
    read = library_module.read_entry
    overtaken = []

    def overtake(folder: int, path: Path) -> Any:
        if not overtaken:
            overtaken.append(path)
            library.store(make_key(), {"engine.plan": b"new"}, {})
        return read(folder, path)

    monkeypatch.setattr(library_module, "read_entry", overtake)
    entry = library.load(make_key())
    assert entry is not None
    assert dict(entry.files) == {"engine.plan": b"new"}
    assert not caplog.records
