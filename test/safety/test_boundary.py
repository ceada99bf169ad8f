# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Hostile files come to nothing, whatever way they take (EDGES, campaign 8)."""

from __future__ import annotations

import pytest
from attack_arena import ATTACKS
from boundary_runs import list_runs, open_boundary
from boundary_ways import NO_FILES, WAYS, list_entries

PAIRS = list_runs(every=False)


@pytest.fixture(scope="module")
def boundary():
    with open_boundary() as opened:
        yield opened


@pytest.mark.parametrize("kind", dict.fromkeys(one.kind for one, _ in PAIRS))
def test_nothing_is_run_and_nothing_else_is_read(boundary, kind):
    """Campaign 8: every attack and every way into the package, as an unprivileged user."""
    for one, way in PAIRS:
        if one.kind == kind:
            done = boundary.run(one, way, 1)
            if done.verdict is not None:
                verdict = done.verdict
                found = (verdict.executed, verdict.reads, verdict.reached, verdict.faults)
                assert found == (False, (), (), ()), (done.name, verdict.ending)


@pytest.mark.parametrize("name", ["a playlist (HLS) for a video", "an absolute name"])
def test_an_attack_is_noticed_that_succeeds(boundary, name):
    """Campaign 8: read without care, the same files come to harm, and it is seen."""
    (one,) = (one for one in ATTACKS if one.name == name)
    done = boundary.run(one, None, 1)
    assert done.verdict is not None
    assert done.verdict.harm


def test_every_way_of_a_file_into_the_package_is_attacked():
    """Campaign 8: a new option is either attacked, or said to take no file from outside."""
    ways = {way.entry for way in WAYS if not way.entry.startswith("in a folder: ")}
    assert set(list_entries()) == ways | set(NO_FILES)
    assert not ways & set(NO_FILES)
    assert {way.kind for way in WAYS} == {one.kind for one in ATTACKS}
