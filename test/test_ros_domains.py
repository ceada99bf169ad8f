# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""No two runs of tests on one machine use the same ROS domain."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ros_domains

SUPPORT = Path(ros_domains.__file__).parent


def test_a_claimed_domain_is_nobody_else_s(monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1234)  # two that would draw the same number
    with ros_domains.claimed_domain() as one, ros_domains.claimed_domain() as other:
        assert one != other
        assert {one, other} <= set(range(1, 102))
    with ros_domains.claimed_domain() as again:
        assert again == one


def test_a_claim_ends_with_its_process_even_if_that_is_killed(monkeypatch):
    code = "import ros_domains\nprint(ros_domains.claim_domain(), flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=SUPPORT, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        taken = int(process.stdout.readline())
        monkeypatch.setattr(os, "getpid", lambda: taken - 1)
        with ros_domains.claimed_domain() as mine:
            assert mine != taken
        process.kill()
        process.wait()
        with ros_domains.claimed_domain() as mine:
            assert mine == taken


def test_that_all_are_taken_is_said(monkeypatch):
    monkeypatch.setattr(ros_domains, "COUNT", 0)
    with pytest.raises(RuntimeError, match="have all ROS domains"):
        ros_domains.claim_domain()


def test_this_run_has_claimed_its_own():
    assert int(os.environ["ROS_DOMAIN_ID"]) in ros_domains._claims
