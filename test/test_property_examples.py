# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Properties are tested with the same examples in each run, whatever ran before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from property_examples import DRAWN, FIXED

SUPPORT = Path(__file__).parent / "support"
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


def draw(profile, *modules, hash_seed="0"):
    """What a property is given in a process that has loaded the modules."""
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{SUPPORT}"}
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


def test_the_other_profile_draws_fresh_examples(alone):
    assert draw(DRAWN) != alone
    assert draw(DRAWN) != draw(DRAWN)


def test_this_run_has_the_same_examples_each_time(request):
    from hypothesis import settings

    if not request.config.getoption("--hypothesis-profile"):
        assert settings.default.derandomize
    assert settings.default.database is None
