# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Spoilt inputs of every format are read or refused: the short form of ``campaigns/fuzz.py``."""

from __future__ import annotations

import math

import pytest
from fuzzing.batches import Campaign, list_missing
from fuzzing.child import READ
from fuzzing.formats import FORMATS
from fuzzing.planted import READERS

COUNTS = {"onnx": 60, "pt2": 6, "tuning": 8, "entry": 60, "parameters": 60}
"""Inputs of the formats that take longest, the crafted and the found ones included."""


@pytest.mark.parametrize("name", FORMATS)
def test_spoilt_inputs_are_read_or_refused(name, tmp_path):
    """Whatever is in a file: an error of the package, bounded memory, and no reach beyond it."""
    if missing := list_missing(name):
        pytest.skip(f"{', '.join(missing)} is not installed")
    # Time is for the long form, on a machine that does nothing else.
    with Campaign(1, tmp_path / "kept", cpu_s=math.inf) as campaign:
        tally = campaign.run(name, count=COUNTS.get(name, 200))
    assert tally.faults == []
    assert tally.inputs == COUNTS.get(name, 200)
    assert tally.ends["refused"] > 0
    lost = [line["name"] for line in tally.lines if line["sound"] and line["how"] != READ]
    assert not lost


def test_every_kind_of_fault_is_found():
    """A reader that raises, reaches out, dies, or takes too much is named with its input."""
    with Campaign(1, memory_mib=100, cpu_s=0.5) as campaign:
        tally = campaign.run("planted", count=1 + len(READERS))
    for name, (kind, _, _) in READERS.items():
        kinds = [
            fault.split("): ")[1].split(":")[0] for fault in tally.faults if f"({name})" in fault
        ]
        assert kind in kinds if kind else not kinds, (name, tally.faults)


def test_an_input_can_be_repeated(tmp_path):
    """By format, seed and number, and from the folder that keeps it."""
    kept = []
    for folder in ("first", "again"):
        with Campaign(1, tmp_path / folder) as campaign:
            number = 1 + sorted(READERS).index("a foreign error")
            campaign.run("planted", first=number, count=1)
        kept.append((tmp_path / folder / f"planted-1-{number}" / "a foreign error").read_bytes())
    assert kept == [b"x", b"x"]
