# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The command line as scripts see it: exit codes, one line of error, JSON on the last line."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from jetson_dnn_rt import __version__
from jetson_dnn_rt.cli import doctor, main
from jetson_dnn_rt.cli.doctor import Check
from jetson_dnn_rt.cli.environment import (
    LOCALHOST_PROFILE,
    PROFILE,
    choose_profile,
    enlarge_segment,
    find_picture_bytes,
    find_shared_file,
    prepare_environment,
    profile_variable,
)
from jetson_dnn_rt.cli.text import format_rows
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.printable import PrintableFormatter

COMMAND = [sys.executable, "-m", "jetson_dnn_rt.cli.main"]


def start(*arguments):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigurationError("bad\nvalue"), 2), (ModelError("no such file"), 1)]
)
def test_errors_are_one_line_with_their_exit_code(error, code, monkeypatch, capsys):
    def fail(args):
        raise error

    monkeypatch.setattr(doctor, "execute", fail)
    assert main.main(["doctor"]) == code
    captured = capsys.readouterr()
    text = " ".join(str(error).split())
    assert captured.err == f"jetson-dnn-rt doctor: error: {text}\n"
    assert captured.out == ""


def test_a_mistake_in_the_code_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(doctor, "execute", lambda args: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main.main(["doctor"])


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["doctor", "--no-such-option"]])
def test_bad_arguments_are_exit_code_2(arguments):
    with pytest.raises(SystemExit) as ended:
        main.main(arguments)
    assert ended.value.code == 2


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"jetson-dnn-rt {__version__}\n"


def test_every_command_has_the_interface_and_a_help_text():
    help_text = main.build_parser().format_help()
    for name in main.list_commands():
        assert name in help_text


def test_closed_pipe_is_no_traceback(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*COMMAND, "library", "list", "--engine-cache", str(tmp_path)],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_disk_that_fails_is_one_line(monkeypatch, capsys):
    """EDGES, campaign 5: an error of the machine is no mistake in the code."""

    def fail(args):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/data/trace")

    monkeypatch.setattr(doctor, "execute", fail)
    assert main.main(["doctor"]) == 1
    line = "jetson-dnn-rt doctor: error: /data/trace: Input/output error\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("full", ["stdout", "stderr"])
def test_output_onto_a_full_disk_is_a_failure_and_no_traceback(tmp_path, full):
    """EDGES, campaign 5: the interpreter tried again at its end, and ended with 120."""
    with open("/dev/full", "w") as device:
        outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, full: device}
        action = "list" if full == "stdout" else "export"
        more = [str(tmp_path / "no" / "all.tar")] if full == "stderr" else []
        command = [*COMMAND, "library", action, *more, "--engine-cache", str(tmp_path)]
        done = subprocess.run(command, **outputs, text=True, timeout=60)
    assert done.returncode == (1 if full == "stdout" else 2)
    if full == "stdout":
        line = "jetson-dnn-rt library: error: reading or writing: No space left on device\n"
        assert done.stderr == line


def test_help_needs_nothing_heavy():
    code = (
        "import sys; from jetson_dnn_rt.cli.main import build_parser; build_parser();"
        "print([m for m in ('torch', 'rclpy', 'matplotlib', 'onnxruntime', 'openvino')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def make_check(*, ok, required):
    return Check("thing", ok, "detail", "" if ok else "fix it", required)


@pytest.mark.parametrize(
    ("check", "code"),
    [
        (make_check(ok=True, required=True), 0),
        (make_check(ok=False, required=False), 0),
        (make_check(ok=False, required=True), 1),
    ],
)
def test_doctor_fails_only_for_what_run_needs(check, code, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "run_checks", lambda: [check])
    assert main.main(["doctor", "--json"]) == code
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["ok"] is (code == 0)
    assert result["checks"]["thing"]["fix"] == check.fix
    assert main.main(["doctor"]) == code
    assert ("-> fix it" in capsys.readouterr().out) is not check.ok


@pytest.mark.slow
def test_doctor_on_this_machine():
    pytest.importorskip("rclpy")
    done = start("doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["version"] == __version__
    assert {"ros", "sched_fifo", "cpu governor", "dds profile"} <= set(result["checks"])
    for check in result["checks"].values():
        assert "\n" not in check["fix"]


def test_bench_names_the_command_of_a_checkout(capsys):
    assert main.main(["bench", "overload", "--seconds", "3"]) == 2
    assert "python -m benchmarks overload --seconds 3\n" in capsys.readouterr().err


def test_environment_is_set_only_where_the_user_has_not():
    environ: dict[str, str] = {}
    done = prepare_environment(environ)
    assert profile_variable() in done
    assert Path(environ[profile_variable()]).is_file()
    assert prepare_environment(environ) == []
    # Fast DDS must not take settings from the working folder, whoever put them there.
    assert environ["SKIP_DEFAULT_XML_FILE"] == "1"
    theirs = {
        "AMENT_PREFIX_PATH": "/mine", profile_variable(): "/mine.xml", "SKIP_DEFAULT_XML_FILE": "0"
    }  # fmt: skip
    before = dict(theirs)
    assert prepare_environment(theirs) == []
    assert theirs == before


def test_large_pictures_get_a_profile_with_a_larger_segment():
    shipped = find_shared_file(PROFILE)
    assert shipped is not None
    common = {profile_variable(): str(shipped)}
    assert find_picture_bytes([]) == find_picture_bytes([(0, 0)]) == 0
    for sizes in ([], [(640, 480)], [(640, 480), (1920, 1080)]):
        assert choose_profile({}, find_picture_bytes(sizes)) == common
    (file,) = choose_profile({}, find_picture_bytes([(640, 480), (3840, 2160)])).values()
    text = Path(file).read_text("utf-8")
    root = ElementTree.fromstring(text)
    values = {one.tag.rpartition("}")[2]: one.text for one in root.iter()}
    picture = 3 * 3840 * 2160
    assert values["segment_size"] == str(5 * picture)
    # Each piece of every picture has a place in a reader's queue.
    assert int(values["port_queue_capacity"] or 0) >= 5 * picture / 65_500
    assert "port_queue_capacity" not in {
        one.tag.rpartition("}")[2] for one in ElementTree.parse(shipped).getroot().iter()
    }
    assert choose_profile({profile_variable(): "/mine.xml"}, picture) == {}
    # Without the room in /dev/shm, or in another form of profile, it stays as it is.
    assert enlarge_segment(text, 1 << 50) == ""
    assert enlarge_segment("<dds/>", picture) == ""


@pytest.mark.parametrize(
    ("given", "file"),
    [
        ({}, PROFILE),
        ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}, PROFILE),
        ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}, LOCALHOST_PROFILE),
        ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "OFF"}, LOCALHOST_PROFILE),
        ({"ROS_LOCALHOST_ONLY": "1"}, LOCALHOST_PROFILE),
        ({"ROS_LOCALHOST_ONLY": "0"}, PROFILE),
        # A peer may be another machine.
        ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "ROS_STATIC_PEERS": "10.0.0.2"}, PROFILE),
    ],
)
def test_a_localhost_only_ros_gets_a_profile_without_a_network(given, file):
    assert choose_profile(given) == {profile_variable(): str(find_shared_file(file))}
    for name in ("FASTDDS", "FASTRTPS"):
        assert choose_profile({**given, f"{name}_DEFAULT_PROFILES_FILE": "/mine.xml"}) == {}


def test_names_from_files_are_no_commands_to_the_terminal(capsys):
    """Campaign 8: in errors, in what is logged, and in tables."""
    assert main.main(["simulate", "--scenario", "\x1b]0;owned\x07", "--policy", "static"]) == 2
    assert "?]0;owned?" in capsys.readouterr().err
    record = logging.LogRecord("x", logging.WARNING, "", 0, "a\x1b[2J\nb", (), None)
    assert PrintableFormatter("%(message)s").format(record) == "a?[2J\nb"
    assert "?[2J" in format_rows(["task"], [["\x1b[2J"]])


def test_table_is_aligned():
    table = format_rows(["task", "p50"], [["a", 1.25], ["longer", None], ["c", 10]])
    assert table.splitlines() == [
        "task    p50",
        "------  ---",
        "a       1.2",
        "longer    -",
        "c        10",
    ]
