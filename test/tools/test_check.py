# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What `make test` runs and prints: each distribution's tests, each closing line."""

from __future__ import annotations

import check
import pytest

DEFAULT, OTHER = check.DEFAULT, "jazzy"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Environments that say who they are in place of tools; an exit code makes a run fail."""
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "CHECKS", {"lint": ("echo", "linted")})
    monkeypatch.delenv("ROS_DISTRO", raising=False)
    for ros in (DEFAULT, OTHER):
        folder = check.find_environment(ros)
        folder.mkdir()
        (folder / "env.sh").write_text(f"export WHO={ros}\n")
    say = 'echo "$WHO $AMENT_PREFIX_PATH"; echo "= 3 passed on $WHO ="; '
    monkeypatch.setattr(check, "EVERYTHING", ("bash", "-c", say))
    python = 'echo "= 1 passed, JETSON_DNN_RT_PURE=$JETSON_DNN_RT_PURE ="'
    monkeypatch.setattr(check, "PURE", ("bash", "-c", python))
    monkeypatch.setattr(check, "NODES", ("bash", "-c", say + "exit ${CODE:-0}"))
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
    assert lines[-6:] == [
        "== decisions as Python:",
        "= 1 passed, JETSON_DNN_RT_PURE=1 =",
        f"== {OTHER}:",
        f"= 3 passed on {OTHER} =",
        f"== {DEFAULT}:",
        f"= 3 passed on {DEFAULT} =",
    ]


def test_a_failure_on_another_distribution_fails_the_whole(checkout, monkeypatch, capfd):
    monkeypatch.setenv("CODE", "1")
    assert run(monkeypatch, "--tests", DEFAULT, OTHER) == 1
    assert run(monkeypatch, "--tests", DEFAULT) == 0
    capfd.readouterr()
    assert run(monkeypatch, "--tests", OTHER) == 1
    assert "linted" not in capfd.readouterr().out


def test_a_ros_that_is_sourced_is_the_only_one(checkout, monkeypatch, capfd):
    monkeypatch.setenv("ROS_DISTRO", "humble")
    assert run(monkeypatch, "--tests", DEFAULT, OTHER) == 0
    assert f"3 passed on {OTHER}" not in capfd.readouterr().out
    assert run(monkeypatch, "--tests", OTHER) == 2
    assert "ROS 2 humble is sourced" in capfd.readouterr().out
