"""A measurement that is interrupted and continued."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.profile.journal import (
    ALONE,
    Chunk,
    ChunkKey,
    FileJournal,
    Journal,
    list_chunks,
    load_chunk,
)
from jetson_dnn_rt.variants.measuring.timing import TimedRun

SETTINGS = {"runs": 100, "models": {"detector": "abc"}, "clocks": "current"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "progress.jsonl"


def test_what_is_done_is_found_again_in_its_order(path: Path) -> None:
    with FileJournal(path, SETTINGS) as journal:
        assert journal.resumed == 0
        for number in (2, 0, 1):
            journal.put(f"runs|{number}", [number, {"a": None}])
        journal.put("power|3", 1.5)
    with FileJournal(path, SETTINGS) as journal:
        assert journal.resumed == 4
        assert journal.get("runs|0") == [0, {"a": None}]
        assert journal.get("runs|9") is None
        assert [name for name, _ in journal.items("runs|")] == ["runs|2", "runs|0", "runs|1"]
        journal.put("runs|9", [])
    with FileJournal(path, SETTINGS) as journal:
        assert journal.resumed == 5


@given(cut=st.integers(min_value=1, max_value=10_000))
def test_a_file_cut_anywhere_gives_the_pieces_that_were_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "progress.jsonl"
    ends = []
    with FileJournal(path, SETTINGS) as journal:
        for number in range(5):
            journal.put(f"piece {number}", {"times": list(range(20 * number))})
            ends.append(path.stat().st_size)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut % len(data)])
    kept = sum(end <= path.stat().st_size for end in ends)
    with FileJournal(path, SETTINGS) as journal:
        assert journal.resumed == kept
        journal.put("after", 1)
    with FileJournal(path, SETTINGS) as journal:
        assert journal.resumed == kept + 1
        assert journal.get("after") == 1


def test_killed_in_the_middle_nothing_finished_is_lost(path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from jetson_dnn_rt.lab.profile.journal import FileJournal\n"
        "journal = FileJournal(Path(sys.argv[1]), {'runs': 1})\n"
        "for number in range(7):\n    journal.put(str(number), number)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, os.fspath(path)], timeout=60, check=False)
    assert done.returncode == -9
    with FileJournal(path, {"runs": 1}) as journal:
        assert journal.resumed == 7


def test_other_settings_are_refused_with_what_differs(path: Path) -> None:
    FileJournal(path, SETTINGS).close()
    changed = {**SETTINGS, "runs": 200, "models": {"detector": "xyz"}, "cold": 3}
    with pytest.raises(ConfigurationError) as caught:
        FileJournal(path, changed)
    text = str(caught.value)
    assert "runs was 100, is 200" in text
    assert 'models.detector was "abc", is "xyz"' in text
    assert "cold was null, is 3" in text
    assert "clocks" not in text
    assert f"remove {path}" in text


@pytest.mark.parametrize(
    "text",
    ["", "nonsense\n", "[]\n", '{"format": "other", "version": 1, "settings": {}}\n',
     '{"format": "jetson_dnn_rt-profile-journal", "version": 2, "settings": {}}\n',
     json.dumps({"format": "jetson_dnn_rt-profile-journal", "version": 1, "settings": SETTINGS})
     + "\n{}\n"],
)  # fmt: skip
def test_another_file_is_not_written_over(path: Path, text: str) -> None:
    path.write_text(text)
    if not text:
        with FileJournal(path, SETTINGS) as journal:
            assert journal.resumed == 0
        return
    with pytest.raises(ConfigurationError, match="is no journal of a profile"):
        FileJournal(path, SETTINGS)
    assert path.read_text() == text


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot write"):
        FileJournal(tmp_path / "none" / "progress.jsonl", SETTINGS)


def test_in_memory_it_works_without_a_file() -> None:
    with Journal() as journal:
        journal.put("a", 1)
        assert (journal.get("a"), journal.get("b"), journal.resumed) == (1, None, 0)
        assert list(journal.items()) == [("a", 1)]


def test_chunks_come_back_as_they_were() -> None:
    journal = Journal()
    runs = {"a": [TimedRun(3, 99, True, (1, 2, 5)), TimedRun(4, 100, False, (7, 9, 20))]}
    key = ChunkKey("cohort:3", "current", "t", 50)
    chunk = Chunk(key, "gpu 1300 MHz", runs)
    chunk.put(journal)
    assert load_chunk(journal, key) == chunk
    assert load_chunk(journal, ChunkKey(ALONE, "current", "t", 50)) is None
    assert list(list_chunks(journal, "cohort:3")) == [chunk]
    assert list(list_chunks(journal, "cohort")) == []
    assert runs["a"][1].times_ns == (2, 11)
