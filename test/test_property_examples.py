# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Properties are tested with the same examples in each run, whatever ran before."""

from __future__ import annotations

import argparse
import importlib
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from property_examples import DRAWN, FIXED

SUPPORT = Path(__file__).parent / "support"
sys.path.insert(0, os.fspath(SUPPORT.parent / "campaigns"))
PROGRAM = """
import importlib, sys
from property_examples import load_profiles
load_profiles()
for name in sys.argv[2:]:
    importlib.import_module(name)
from hypothesis import given, settings, strategies as st
settings.load_profile(sys.argv[1])
@given(st.lists(st.integers() | st.floats() | st.text()))
def show(values):
    print(ascii(values))
show()
"""


def draw(profile, *modules, hash_seed="0", **variables):
    """What a property is given in a process that has loaded the modules."""
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{SUPPORT}", **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, profile, *modules],
        cwd=SUPPORT.parents[1], env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) >= 90
    return lines


@pytest.fixture(scope="module")
def alone():
    return draw(FIXED)


def test_examples_do_not_depend_on_the_modules_that_are_loaded(alone):
    """Hypothesis draws numbers that stand in their source."""
    assert draw(FIXED, "jetson_dnn_rt.models.tracking", "jetson_dnn_rt.scheduling.engine") == alone


def test_examples_do_not_depend_on_the_order_of_hashes(alone):
    assert draw(FIXED, hash_seed="1") == alone


@pytest.mark.parametrize("variables", [{}, {"CI": "true"}], ids=["person", "server"])
def test_the_other_profile_draws_fresh_examples(alone, variables):
    assert draw(DRAWN, **variables) != alone
    assert draw(DRAWN, **variables) != draw(DRAWN, **variables)


DRAWN_BEFORE = []


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_begins_with_the_same_random_numbers(number):
    """Networks with random weights, above all, whose values are compared."""
    drawn = [random.random(), np.random.rand()]  # noqa: NPY002 - libraries use it
    if (torch := sys.modules.get("torch")) is not None:
        drawn.append(torch.rand(1).item())
    DRAWN_BEFORE.append(drawn)
    assert drawn == DRAWN_BEFORE[0]


def test_this_run_has_the_same_examples_each_time(request):
    from hypothesis import settings

    if not request.config.getoption("--hypothesis-profile"):
        assert settings.default.derandomize
    assert settings.default.database is None


@pytest.fixture
def properties(monkeypatch):
    """The campaign as a module, and what its programs import."""
    monkeypatch.setenv("PYTHONPATH", os.fspath(SUPPORT))
    return importlib.import_module("properties")


def test_the_campaign_draws_fresh_examples_of_real_properties(properties):
    from program import Clock

    result = properties.run(
        argparse.Namespace(clock=Clock(0.01), rng=random.Random(1), times=2, only="test_queue")
    )
    assert result.passed
    assert result.counts["runs of files"] == 1
    assert result.counts["examples"] == 2 * 60


def test_the_campaign_reports_a_counterexample(properties, tmp_path):
    from program import Result

    load = "from property_examples import load_profiles\nload_profiles()\n"
    (tmp_path / "conftest.py").write_text(load)
    path = tmp_path / "test_false.py"
    path.write_text(
        "from hypothesis import given, strategies as st\n"
        "@given(st.integers())\ndef test_small(number):\n    assert number < 1000\n"
    )
    result, tally = Result(), Counter()
    properties.run_file(os.fspath(path), 1, 1, tally, result)
    (fault,) = result.faults
    assert "test_small" in fault
    assert "number=1000" in fault
    assert "seed 1" in fault
    assert tally["counterexamples"] == 1
    path.write_text("import nothing_of_this_name\n")
    properties.run_file(os.fspath(path), 1, 1, tally, result)
    assert "nothing_of_this_name" in result.faults[-1]


def test_the_campaign_knows_every_property(properties):
    found = set(properties.find_files())
    tests = SUPPORT.parent
    for path in tests.rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^\s*@(hypothesis\.)?given\(", text, re.MULTILINE):
            assert path.relative_to(tests.parent).as_posix() in found
