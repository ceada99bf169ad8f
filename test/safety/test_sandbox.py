# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A child without rights: each right is tried, through Python and past it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from jetson_dnn_rt.safety import sandbox
from jetson_dnn_rt.safety.sandbox import MAX_RESULT_BYTES, Limits, SandboxError, run_restricted

NORMAL = Limits()


def run(name, data, limits=NORMAL):
    given = data.encode() if isinstance(data, str) else data
    return run_restricted(f"reaching_out:{name}", given, limits)


@pytest.fixture(autouse=True)
def find_support(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1] / "support"))


def test_gives_results_and_errors_back():
    """EDGES 3: what a child finds comes back as JSON, and its failure as an error."""
    data = bytes(range(256)) * 10_000
    report = run("count", data)
    assert report.result == len(data)
    assert {"limits", "audit hook"} <= set(report.guards)
    with pytest.raises(SandboxError, match="ValueError: no such layer"):
        run("fail", "no such layer")
    assert run("print_much", b"").result == "quiet"
    with pytest.raises(SandboxError, match="exit code 1"):
        run("no_such_function", b"")


@pytest.mark.parametrize("way", ["", "raw "])
def test_writes_nothing(tmp_path, way):
    """EDGES 3: a child neither makes, changes nor removes files, by Python or by the kernel."""
    tmp_path.chmod(0o777)
    path = tmp_path / "file"
    with pytest.raises(SandboxError, match=r"refused|Errno 1\]"):
        run("write", f"{way}{path}")
    assert not path.exists()
    path.write_text("precious")
    path.chmod(0o666)
    for name in ("write", "remove"):
        with pytest.raises(SandboxError, match=r"refused|Errno 1\]"):
            run(name, f"{way}{path}")
    assert path.read_text() == "precious"


@pytest.mark.parametrize("way", ["", "raw "])
def test_connects_to_nothing(way):
    """EDGES 3: a child reaches no port, not even of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        with pytest.raises(SandboxError, match=r"refused|Errno 1\]"):
            run("connect", f"{way}{server.getsockname()[1]}")
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    ("name", "way"), [("spawn", ""), ("spawn", "raw "), ("execute", "raw "), ("signal_parent", "")]
)
def test_starts_and_signals_no_process(tmp_path, name, way):
    """EDGES 3: a child starts no process, becomes none and signals none."""
    tmp_path.chmod(0o777)
    path = tmp_path / "made"
    with pytest.raises(SandboxError, match=r"refused|Errno 1\]"):
        run(name, f"{way}{path}")
    assert not path.exists()


def test_is_nobody_or_without_capabilities():
    """The ids that its guards claim are those of the process, the saved ones, too."""
    report = run("identify", b"")
    mine = [*os.getresuid(), *os.getresgid()]
    nobody = [sandbox._NOBODY] * 6
    assert report.result["ids"] == (nobody if "user nobody" in report.guards else mine)
    if "no capabilities" in report.guards:
        assert report.result["capabilities"] == 0
    if os.geteuid() == 0:
        assert report.result["groups"] == []


def test_root_becomes_nobody_group_first(monkeypatch):
    """Where nobody can read the packages, which on this machine may not be so."""
    calls = []
    for name in ("seteuid", "setgroups", "setresgid", "setresuid"):
        monkeypatch.setattr(os, name, lambda *ids, name=name: calls.append((name, *ids)))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "access", lambda *_, **__: True)
    monkeypatch.setattr(sandbox, "_prctl", lambda *_: 0)
    monkeypatch.setattr(sandbox, "_LIBC", SimpleNamespace(capset=lambda *_: 0))
    assert sandbox._drop_user() == ["user nobody", "no capabilities"]
    nobody = sandbox._NOBODY
    assert calls == [
        ("seteuid", nobody),
        ("seteuid", 0),
        ("setgroups", []),
        ("setresgid", nobody, nobody, nobody),
        ("setresuid", nobody, nobody, nobody),
    ]


def test_takes_no_more_memory_than_it_may():
    """EDGES 3: memory beyond the limit is not given."""
    limits = Limits(memory_bytes=256 << 20)
    assert run("fill_memory", str(32 << 20), limits).result == 32 << 20
    with pytest.raises(SandboxError, match="MemoryError"):
        run("fill_memory", str(512 << 20), limits)


def test_takes_no_more_time_than_it_may():
    """EDGES 3: a child that does not end is ended, whether it works or waits."""
    with pytest.raises(SandboxError, match=r"SIGXCPU|SIGKILL"):
        run("run_for_ever", b"", Limits(cpu_s=1))
    with pytest.raises(SandboxError, match="longer than 3 s"):
        run("run_for_ever", b"wait", Limits(wall_s=3))


def test_imports_no_module_that_is_not_expected(tmp_path, monkeypatch):
    """EDGES 3: a module that a file names is not imported, even where nobody sees the error."""
    marker = tmp_path / "marker"
    (tmp_path / "trapped.py").write_text(f"open({str(marker)!r}, 'w')\n")
    support = Path(__file__).resolve().parents[1] / "support"
    monkeypatch.setenv("PYTHONPATH", f"{support}:{tmp_path}")
    with pytest.raises(SandboxError, match="refused: import of trapped"):
        run("import_module", "trapped")
    assert not marker.exists()
    assert run("import_module", "no_such_module").result == "swallowed"
    assert run("import_module", "zipapp").result == "imported"
    assert run("import_module", "yaml", Limits(packages=("yaml",))).result == "imported"


def test_every_call_that_reaches_out_is_refused_by_the_kernel():
    """Each call of the list ends with the error of the filter, not one of its own."""
    if "seccomp" not in run("count", b"").guards:
        pytest.skip("the kernel has no filter of system calls")
    column = sandbox._MACHINES[platform.machine()][1]
    wanted, calls = {}, {}
    for names, error in (
        (sandbox._REFUSED_CALLS, errno.EPERM),
        (sandbox._MISSING_CALLS, errno.ENOSYS),
    ):
        for name, numbers in names.items():
            if numbers[column] is not None:
                # What no call takes, should the filter miss it.
                calls[name], wanted[name] = [numbers[column], *[-1] * 6], error
    for command in (fcntl.F_SETOWN, fcntl.F_SETSIG, 15):  # F_SETOWN_EX
        name = f"fcntl {command}"
        calls[name], wanted[name] = [sandbox._FCNTL[column], 0, command, 1], errno.EPERM
    calls["fcntl F_GETFD"], wanted["fcntl F_GETFD"] = [sandbox._FCNTL[column], 0, fcntl.F_GETFD], 0
    assert {"kcmp", "shmat", "fremovexattr", "ioprio_set", "mq_unlink"} <= set(calls)
    assert run("call_kernel", json.dumps(calls)).result == wanted


@pytest.mark.parametrize("stream", ["2", "1"])
def test_what_a_child_prints_takes_no_memory_here(stream):
    """A child that floods its output is killed; at most a little of it is kept."""
    with pytest.raises(SandboxError, match=f"more than {MAX_RESULT_BYTES} bytes"):
        run("flood", stream)
    assert run("answer_much", str(MAX_RESULT_BYTES - 1000)).result == "x" * (
        MAX_RESULT_BYTES - 1000
    )
    with pytest.raises(SandboxError, match=f"more than {MAX_RESULT_BYTES} bytes"):
        run("answer_much", str(MAX_RESULT_BYTES))


def test_inherits_no_descriptor(tmp_path):
    """Even one that is meant for children of others does not reach it."""
    (tmp_path / "secret").write_text("x")
    fd = os.open(tmp_path / "secret", os.O_RDWR)
    os.set_inheritable(fd, True)
    try:
        links = run("list_descriptors", b"").result
    finally:
        os.close(fd)
    assert links
    assert not [link for link in links if not link.startswith(("pipe:", "/dev/"))]
