# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The set-up scripts: what they refuse, what they rewrite, when they do nothing."""

from __future__ import annotations

import os
import re
import runpy
import sys
import sysconfig
from pathlib import Path

import pytest
import setup_env
import setup_ros
from setup_progress import Progress, SetupError

WHEEL_FILE = """set_target_properties(x PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "/opt/python/cp312-cp312/include/python3.12;\
/opt/python/cp312-cp312/lib/python3.12/site-packages/numpy/_core/include"
  LOCATION "/opt/python/cp312-cp312/lib/libx.so;${_IMPORT_PREFIX}/lib/liby.so")
"""


@pytest.fixture
def paths(tmp_path):
    """An environment like the wheels leave it."""
    prefix = tmp_path / "env"
    index = prefix / "share/ament_index/resource_index/parent_prefix_path"
    index.mkdir(parents=True)
    (index / "x").write_text("/opt/python/cp312-cp312/opt/python/cp312-cp312")
    cmake = prefix / "share/x/cmake"
    cmake.mkdir(parents=True)
    (cmake / "export_x.cmake").write_text(WHEEL_FILE)
    (cmake / "clean.cmake").write_text("nothing to fix")
    site = prefix / "lib/python3.12/site-packages"
    numpy = site / "numpy/core/include"
    return setup_ros.Paths(prefix / "bin/python", prefix, site, tmp_path / "include", numpy)


def test_prefixes_are_rewritten_once(paths):
    assert setup_ros.rewrite_prefixes(paths) == 2
    text = (paths.prefix / "share/x/cmake/export_x.cmake").read_text()
    assert f'"{paths.include};{paths.numpy_include}"' in text
    assert f'"{paths.prefix}/lib/libx.so;${{_IMPORT_PREFIX}}/lib/liby.so"' in text
    index = paths.prefix / "share/ament_index/resource_index/parent_prefix_path/x"
    assert index.read_text() == os.fspath(paths.prefix)
    assert setup_ros.rewrite_prefixes(paths) == 0


def test_changed_interface_sources_are_built_again(tmp_path):
    mark = tmp_path / "share/vision_msgs/built-from.sha256"
    assert setup_ros.outdated_interfaces(tmp_path) == []
    mark.parent.mkdir(parents=True)
    assert setup_ros.outdated_interfaces(tmp_path) == ["vision_msgs"]
    mark.write_text(setup_ros.hash_sources("vision_msgs"))
    assert setup_ros.outdated_interfaces(tmp_path) == []


def test_another_environments_traces_are_removed(tmp_path, monkeypatch):
    (tmp_path / "pyvenv.cfg").touch()
    foreign = tmp_path / "lib/python3.12/site-packages/ros_x.libs"
    monkeypatch.setenv("_ROS_WHEELS_BOOTSTRAP_COMPLETE", "1")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{foreign}:/opt/ros/humble/lib:{tmp_path / 'lib'}")
    env = setup_ros.clean_environment()
    assert "_ROS_WHEELS_BOOTSTRAP_COMPLETE" not in env
    assert env["LD_LIBRARY_PATH"] == "/opt/ros/humble/lib"


def test_missing_compiler_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(SetupError, match="apt install build-essential"):
        setup_ros.check_build_tools(Path(sysconfig.get_path("include")))


@pytest.mark.parametrize(
    ("version", "machine", "system_ros", "distro", "words"),
    [
        ((3, 14), "x86_64", False, None, "too new.*make PYTHON="),
        ((3, 12), "aarch64", False, None, "ROS comes from apt"),
        ((3, 12), "x86_64", False, "humble", "humble is sourced, but Python 3.12 cannot"),
    ],
)
def test_impossible_machines_are_refused(version, machine, system_ros, distro, words):
    with pytest.raises(SetupError, match=words):
        setup_env.check_platform(version, machine, "Linux", system_ros, distro)


@pytest.mark.parametrize(
    ("version", "machine", "system_ros", "distro"),
    [
        ((3, 10), "x86_64", False, None),
        ((3, 13), "x86_64", False, None),
        ((3, 10), "aarch64", True, "humble"),
        ((3, 14), "x86_64", True, "rolling"),
    ],
)
def test_possible_machines_are_accepted(version, machine, system_ros, distro):
    setup_env.check_platform(version, machine, "Linux", system_ros, distro)


@pytest.mark.parametrize(
    ("version", "machine", "system", "there"),
    [
        ((3, 10), "x86_64", "Linux", True),
        ((3, 14), "aarch64", "Linux", True),
        ((3, 15), "x86_64", "Linux", False),
        ((3, 12), "riscv64", "Linux", False),
        ((3, 12), "x86_64", "FreeBSD", False),
    ],
)
def test_tvm_is_asked_for_where_its_wheels_are(version, machine, system, there):
    assert setup_env.has_tvm_wheels(version, machine, system) is there


def test_source_hash_sees_content_and_names(tmp_path, monkeypatch):
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "a"
    file.write_text("1")
    hashes = [setup_env.hash_sources(("folder",))]
    file.write_text("2")
    hashes.append(setup_env.hash_sources(("folder",)))
    file.rename(tmp_path / "folder" / "b")
    hashes.append(setup_env.hash_sources(("folder",)))
    hashes.append(setup_env.hash_sources(("folder",), "another Python"))
    assert len(set(hashes)) == 4


@pytest.mark.parametrize("content", ["", "{", "[]", None])
def test_damaged_stamp_means_not_up_to_date(tmp_path, content):
    if content is not None:
        (tmp_path / ".setup-stamp.json").write_text(content)
    environment = setup_env.Environment(tmp_path, sys.executable, system_ros=None)
    assert environment.read_stamp() != environment.wanted_stamp()
    assert not environment.works()


def test_the_demo_is_content_with_everything_and_the_tests_are_not_with_the_demo(tmp_path):
    def make(purpose):
        return setup_env.Environment(tmp_path, sys.executable, None, purpose)

    demo, everything = setup_env.DEMO, setup_env.EVERYTHING
    make(demo).write_stamp(make(demo).wanted_stamp())
    assert make(demo).wanted_stamp() == make(demo).read_stamp()
    assert make(everything).wanted_stamp() != make(everything).read_stamp()
    make(everything).write_stamp(make(everything).wanted_stamp())
    assert make(demo).wanted_stamp() == make(demo).read_stamp()


def test_the_demo_and_the_lanes_need_no_torch():
    both = {*setup_env.GROUPS[setup_env.DEMO], *setup_env.GROUPS[setup_env.ROBOT]}
    for group in ("runtime", "ros", "opencv", *(both - {"openvino"})):
        lines = Path(setup_env.requirements(group)).read_text().splitlines()
        names = {line.partition(">")[0] for line in lines}
        assert not names & {"torch", "torchvision", "onnx2torch", "openvino"}, group


@pytest.mark.parametrize("ros", setup_ros.DISTRIBUTIONS)
def test_each_distribution_has_its_wheels_and_stamp(tmp_path, monkeypatch, ros):
    commands = []
    monkeypatch.setattr(
        Progress, "run", lambda self, title, command, **_: commands.append(command)
    )
    monkeypatch.setattr(setup_ros.Paths, "of", lambda prefix: None)
    monkeypatch.setattr(setup_ros, "provide_headers", lambda paths, progress: paths)
    monkeypatch.setattr(setup_ros, "rewrite_prefixes", lambda paths: 0)
    setup_ros.install_wheels(tmp_path, Progress("set-up", tmp_path / "log"), ros)
    (command,) = commands
    wheels = re.findall(r"(?m)^ros-.+", Path(command[-1]).read_text())
    assert f"ros-{ros}-rclpy[fastrtps]" in wheels
    assert all(wheel.startswith(f"ros-{ros}-") for wheel in wheels)  # none of another one
    stamps = {
        setup_env.Environment(tmp_path, sys.executable, None, ros=one).wanted_stamp()[
            "environment"
        ]
        for one in setup_ros.DISTRIBUTIONS
    }
    assert len(stamps) == len(setup_ros.DISTRIBUTIONS)


def test_an_environment_of_another_distribution_is_made_anew(tmp_path, monkeypatch):
    site = tmp_path / "lib/python3.11/site-packages"
    (site / "ros_kilted_rclpy-9.1.2.dist-info").mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    monkeypatch.setattr(setup_env.Environment, "works", lambda self: True)
    commands = []
    monkeypatch.setattr(
        Progress, "run", lambda self, title, command, **_: commands.append(command)
    )
    progress = Progress("set-up", tmp_path / "log")
    for ros, made in (("kilted", False), ("jazzy", True)):
        setup_env.Environment(tmp_path, sys.executable, None, ros=ros).create(progress)
        assert any("--clear" in command for command in commands) == made


def test_lower_bounds_are_held(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("# why\nrosbags>=0.11.7,<0.12\nc.d>=1; python_version < '3'\n")
    (tmp_path / "b.txt").write_text("psutil\ntvm==1.2\n")
    monkeypatch.setattr(setup_env, "requirements", lambda name: tmp_path / f"{name}.txt")
    assert setup_env.find_lowest("ab") == {"rosbags": "0.11.7", "c.d": "1"}


def test_the_lowest_versions_make_another_environment(tmp_path):
    def make(**given):
        return setup_env.Environment(tmp_path, sys.executable, None, "robot", **given)

    assert make().wanted_stamp() != make(lowest=True).wanted_stamp()
    (argument, file) = make(lowest=True).hold_lowest()
    assert argument == "-c"
    assert {"numpy==1.21.*", "onnx==1.15.*"} <= {*Path(file).read_text().split()}


def test_a_python_is_found_that_runs(tmp_path, monkeypatch):
    """A shim of pyenv is in the path for versions that are not switched on, too: it fails."""
    shim, real = tmp_path / "shims/python3.99", tmp_path / "versions/3.99.1/bin/python3.99"
    for file, program in ((shim, "exit 127"), (real, "echo 3.99")):
        file.parent.mkdir(parents=True)
        file.write_text(f"#!/bin/sh\n{program}\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", os.fspath(tmp_path))
    assert setup_env.find_python("3.99") == os.fspath(real)
    assert setup_env.find_python("3.98") is None
    monkeypatch.delenv("PYENV_ROOT")
    monkeypatch.setenv("HOME", os.fspath(tmp_path / "home"))
    assert setup_env.find_python("3.99") is None
    monkeypatch.setattr(sys, "base_prefix", os.fspath(tmp_path / "versions/3.11.7"))
    assert setup_env.find_python("3.99") == os.fspath(real)


def test_without_its_python_a_lane_is_left_out_aloud(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(setup_env, "find_python", lambda version: None)
    monkeypatch.delenv("ROS_DISTRO", raising=False)
    assert setup_env.hand_over("3.10", tmp_path / ".venv-3.10") == 0
    assert "left out: Python 3.10 is not on this machine" in capsys.readouterr().out
    monkeypatch.setenv("ROS_DISTRO", "humble")
    assert setup_env.hand_over("3.10", tmp_path / ".venv-3.10") == 0
    assert "left out: ROS 2 humble is sourced" in capsys.readouterr().out


def test_every_file_that_is_installed_makes_the_package_stale(monkeypatch):
    seen = {}
    monkeypatch.setattr("setuptools.setup", lambda **given: seen.update(given))
    monkeypatch.setattr(sys, "argv", ["setup.py", "install"])
    monkeypatch.chdir(setup_env.ROOT)
    runpy.run_path("setup.py")
    sources = {Path(file).parts[0] for _, files in seen["data_files"] for file in files}
    assert {"config", "examples", "plugin.xml"} <= sources <= {*setup_env.PACKAGE_SOURCES}


def test_failing_command_shows_its_end_and_the_fix(tmp_path):
    progress = Progress("set-up", tmp_path / "log")
    program = "print('working'); raise SystemExit('the reason')"
    with pytest.raises(SetupError, match=r"(?s)exit code 1.*the reason.*try that"):
        progress.run("a step", [sys.executable, "-c", program], hint="try that")
    assert "working" in (tmp_path / "log").read_text()


def test_command_that_cannot_start_is_an_error(tmp_path):
    with pytest.raises(SetupError, match="cannot start /nonexistent"):
        Progress("set-up", tmp_path / "log").run("a step", ["/nonexistent"])
