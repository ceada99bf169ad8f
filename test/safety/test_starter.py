# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The process that a node must not outlive."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jetson_dnn_rt.safety.starter import VARIABLE, find_start, find_starter, name_starter


def test_a_process_is_named_by_its_identifier_and_its_start(monkeypatch):
    (value,) = name_starter().values()
    pid, ticks = map(int, value.split(":"))
    assert (pid, ticks) == (os.getpid(), find_start(os.getpid()))
    monkeypatch.setenv(VARIABLE, value)
    assert find_starter() == value


def test_the_name_of_a_program_may_have_parentheses(tmp_path):
    program = tmp_path / "a) 1 (b"
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert find_start(process.pid) >= find_start(os.getpid()) > 0
        process.stdin.close()


@pytest.mark.parametrize("value", ["", "1", ":", "1:x", "x:1", "-1:1"])
def test_another_value_is_no_process(value, monkeypatch):
    monkeypatch.setenv(VARIABLE, value)
    assert find_starter() == ""


def test_a_process_that_is_not_there_has_no_start():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    assert find_start(process.pid) == 0
