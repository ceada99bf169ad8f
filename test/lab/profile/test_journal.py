# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A measurement that is interrupted and continued."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.profile.journal import ALONE, Chunk, Journal, name_chunk, pack_runs
from jetson_dnn_rt.variants.measuring.timing import TimedRun

SETTINGS = {"runs": 100, "models": {"detector": "abc"}, "clocks": "current"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "progress.jsonl"


@contextlib.contextmanager
def begin(path, settings=SETTINGS):
    with Journal(path) as journal:
        journal.begin(settings)
        yield journal


def test_what_is_done_is_found_again_in_its_order(path):
    with begin(path) as journal:
        assert (journal.resumed, journal.settings) == (0, {})
        for number in (2, 0, 1):
            journal.put(f"runs|{number}", [number, {"a": None}])
    with begin(path) as journal:
        assert (journal.resumed, journal.settings) == (3, SETTINGS)
        assert list(journal.pieces) == ["runs|2", "runs|0", "runs|1"]
        assert journal.remember("runs|0", pytest.fail) == [0, {"a": None}]
        assert journal.remember("runs|9", list) == []
    with begin(path) as journal:
        assert journal.resumed == 4


def test_a_disk_that_fails_is_named(path, monkeypatch):
    """EDGES, campaign 5."""

    def fail(file):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with begin(path) as journal:
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(ConfigurationError, match=r"progress\.jsonl: Input/output error"):
            journal.put("runs|0", [])


@given(cut=st.integers(min_value=1, max_value=10_000))
def test_a_file_cut_anywhere_gives_the_pieces_that_were_whole(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("journal") / "progress.jsonl"
    ends = []
    with begin(path) as journal:
        for number in range(5):
            journal.put(f"piece {number}", {"times": list(range(20 * number))})
            ends.append(path.stat().st_size)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut % len(data)])
    kept = sum(end <= path.stat().st_size for end in ends)
    with begin(path) as journal:
        assert journal.resumed == kept
        journal.put("after", 1)
    with begin(path) as journal:
        assert journal.resumed == kept + 1
        assert journal.pieces["after"] == 1


def test_killed_in_the_middle_nothing_finished_is_lost(path):
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from jetson_dnn_rt.lab.profile.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\njournal.begin({'runs': 1})\n"
        "for number in range(7):\n    journal.put(str(number), number)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, os.fspath(path)], timeout=60, check=False)
    assert done.returncode == -9
    with begin(path, {"runs": 1}) as journal:
        assert journal.resumed == 7


def test_other_settings_are_refused_with_what_differs(path):
    with begin(path):
        pass
    changed = {**SETTINGS, "runs": 200, "models": {"detector": "xyz"}, "cold": 3}
    with pytest.raises(ConfigurationError) as caught, begin(path, changed):
        pass
    text = str(caught.value)
    assert "runs was 100, is 200" in text
    assert 'models.detector was "abc", is "xyz"' in text
    assert "cold was null, is 3" in text
    assert "clocks" not in text
    assert f"remove {path}" in text


HEAD = {"format": "jetson_dnn_rt-profile-journal", "version": 1, "settings": SETTINGS}


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[]",
        json.dumps({**HEAD, "format": "other"}),
        json.dumps({**HEAD, "version": 2}),
        json.dumps(HEAD) + "\n{}",
    ],
)
def test_another_file_is_not_written_over(path, text):
    path.write_text(f"{text}\n")
    with pytest.raises(ConfigurationError, match="is not a journal of a profile"):
        Journal(path)
    assert path.read_text() == f"{text}\n"


def test_nothing_is_cut_off_behind_a_link(path, tmp_path):
    """Campaign 8: in a folder of a stranger the journal may be a link to another file."""
    precious = tmp_path / "precious"
    precious.write_text("a line without an end")
    path.symlink_to(precious)
    with pytest.raises(ConfigurationError, match="cannot write"):
        Journal(path)
    assert precious.read_text() == "a line without an end"


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot write"):
        Journal(tmp_path / "none" / "progress.jsonl")


def test_chunks_come_back_as_they_were_without_a_file_too():
    runs = {"a": [TimedRun(3, 99, True, (1, 2, 5)), TimedRun(4, 100, False, (7, 9, 20))]}
    with Journal() as journal:
        journal.begin(SETTINGS)
        packed = {"clocks": "gpu 1300 MHz", "runs": {"a": pack_runs(runs["a"])}}
        journal.put(name_chunk("cohort:3", "current", "t", 50), packed)
        assert list(journal.chunks("cohort:3")) == [Chunk("t", 50, "gpu 1300 MHz", runs)]
        assert list(journal.chunks("cohort")) == list(journal.chunks(ALONE)) == []
