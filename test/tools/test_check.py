# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What `make test` runs and prints: the tests of each distribution and lane, each closing line."""

from __future__ import annotations

import sys

import check
import pytest
import setup_env

DEFAULT, OTHER = check.DEFAULT, "jazzy"
OLD, NEW = check.LANES


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Environments that say who they are in place of tools; an exit code makes a run fail."""
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "CHECKS", {"lint": ("echo", "linted")})
    monkeypatch.delenv("ROS_DISTRO", raising=False)
    for name in (DEFAULT, OTHER, OLD):
        folder = check.find_environment(name)
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/python").symlink_to(sys.executable)
        (folder / "env.sh").write_text(f"export WHO={name}\n")
    say = 'echo "$WHO $AMENT_PREFIX_PATH"; echo "= 3 passed on $WHO ="; '
    monkeypatch.setattr(check, "EVERYTHING", ("bash", "-c", say))
    python = 'echo "= 1 passed, JETSON_DNN_RT_PURE=$JETSON_DNN_RT_PURE ="'
    monkeypatch.setattr(check, "PURE", ("bash", "-c", python))
    monkeypatch.setattr(check, "NODES", ("bash", "-c", say + "exit ${CODE:-0}"))
    monkeypatch.setattr(check, "LANE", ("bash", "-c", say + "exit ${LANE_CODE:-0}"))
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["check.py", *arguments])
    return check.main()


def test_the_closing_line_of_everything_comes_last(checkout, monkeypatch, capfd):
    monkeypatch.setenv("AMENT_PREFIX_PATH", "of the default")
    assert run(monkeypatch, "--tests", DEFAULT, OTHER) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "linted" in lines
    assert f"{DEFAULT} of the default" in lines
    assert f"{OTHER} " in lines  # without the other's packages
    assert lines[-9:] == [
        "== static checks:",
        "all passed",
        f"== {OTHER}:",
        f"= 3 passed on {OTHER} =",
        "== decisions as Python:",
        "= 1 passed, JETSON_DNN_RT_PURE=1 =",
        lines[-3],
        f"== {DEFAULT}:",
        f"= 3 passed on {DEFAULT} =",
    ]
    names = {DEFAULT, "static checks", OTHER, "decisions as Python"}
    ran, failed = lines[-3].removeprefix("== ran: ").split("; ")
    assert ({*ran.split(", ")}, failed) == (names, "failed: none")


def test_a_lane_runs_where_its_python_is_and_is_left_out_aloud_elsewhere(
    checkout, monkeypatch, capfd
):
    assert run(monkeypatch, "--tests", DEFAULT, "--lanes", OLD, NEW) == 0
    lines = capfd.readouterr().out.splitlines()
    *_, end = "\n".join(lines).split("== static checks:\nall passed\n")
    assert f"== Python {OLD}, the lowest versions allowed:\n= 3 passed on {OLD} =\n" in end
    missing = f"LEFT OUT: Python {NEW} is not on this machine"
    assert f"== Python {NEW}, the newest versions:\n{missing}\n" in end
    assert lines[-1] == f"= 3 passed on {DEFAULT} ="
    monkeypatch.setenv("LANE_CODE", "1")
    assert run(monkeypatch, "--tests", DEFAULT, "--lanes", OLD) == 1
    assert f"failed: Python {OLD}" in capfd.readouterr().out


def test_every_file_of_a_lane_is_there():
    for part in (*check.LANE, *check.NODES, *check.PURE):
        if part.startswith("test/"):
            assert (setup_env.ROOT / part).exists(), part


def test_what_failed_is_said_once_more_at_the_end(checkout, monkeypatch, capfd):
    path = checkout / "test_two.py"
    path.write_text(
        """
import logging, pytest

@pytest.fixture
def broken():
    raise OSError("no device")

def test_first(broken):
    pass

def test_second():
    logging.getLogger("a").error("not a name")
    for line in range(100):
        print(f"line {line}")
    assert 1 + 1 == 3

def test_third():
    pass
"""
    )
    pytest_run = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_two.py")
    monkeypatch.setattr(check, "NODES", pytest_run)
    assert run(monkeypatch, "--tests", DEFAULT, OTHER) == 1
    output = capfd.readouterr().out
    *_, end = output.split(f"== {OTHER}:\n")
    lines = end.splitlines()
    assert "line 99" in lines
    assert "line 0" not in lines
    assert [line for line in lines if line.startswith(("FAILED", "ERROR "))] == [
        "ERROR    a:test_two.py:12 not a name",
        "FAILED test_two.py::test_second - assert (1 + 1) == 3",
        "ERROR test_two.py::test_first - OSError: no device",
    ]
    assert any(line.startswith("1 failed, 1 passed, 1 error") for line in lines)
    assert lines[-2:] == [f"== {DEFAULT}:", f"= 3 passed on {DEFAULT} ="]


def test_a_failure_on_another_distribution_fails_the_whole(checkout, monkeypatch, capfd):
    monkeypatch.setenv("CODE", "1")
    assert run(monkeypatch, "--tests", DEFAULT, OTHER) == 1
    assert run(monkeypatch, "--tests", DEFAULT) == 0
    capfd.readouterr()
    assert run(monkeypatch, "--tests", OTHER) == 1
    assert "linted" not in capfd.readouterr().out


def test_a_ros_that_is_sourced_is_the_only_one(checkout, monkeypatch, capfd):
    monkeypatch.setenv("ROS_DISTRO", "humble")
    assert run(monkeypatch, "--tests", DEFAULT, OTHER, "--lanes", OLD) == 0
    output = capfd.readouterr().out
    assert f"3 passed on {OTHER}" not in output
    assert "LEFT OUT: ROS 2 humble is sourced" in output
    assert run(monkeypatch, "--tests", OTHER) == 2
    assert "ROS 2 humble is sourced" in capfd.readouterr().out
