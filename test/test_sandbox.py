"""A child without rights: each right is tried, through Python and past it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from jetson_dnn_rt.sandbox import Limits, Report, SandboxError, run_restricted

NORMAL = Limits()


def run(name: str, data: str | bytes, limits: Limits = NORMAL) -> Report:
    given = data.encode() if isinstance(data, str) else data
    return run_restricted(f"reaching_out:{name}", given, limits)


@pytest.fixture(autouse=True)
def find_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "support"))


def test_gives_results_and_errors_back() -> None:
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
def test_writes_nothing(tmp_path: Path, way: str) -> None:
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
def test_connects_to_nothing(way: str) -> None:
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
def test_starts_and_signals_no_process(tmp_path: Path, name: str, way: str) -> None:
    """EDGES 3: a child starts no process, becomes none and signals none."""
    tmp_path.chmod(0o777)
    path = tmp_path / "made"
    with pytest.raises(SandboxError, match=r"refused|Errno 1\]"):
        run(name, f"{way}{path}")
    assert not path.exists()


def test_takes_no_more_memory_than_it_may() -> None:
    """EDGES 3: memory beyond the limit is not given."""
    limits = Limits(memory_bytes=256 << 20)
    assert run("fill_memory", str(32 << 20), limits).result == 32 << 20
    with pytest.raises(SandboxError, match="MemoryError"):
        run("fill_memory", str(512 << 20), limits)


def test_takes_no_more_time_than_it_may() -> None:
    """EDGES 3: a child that does not end is ended, whether it works or waits."""
    with pytest.raises(SandboxError, match=r"SIGXCPU|SIGKILL"):
        run("run_for_ever", b"", Limits(cpu_s=1))
    with pytest.raises(SandboxError, match="longer than 3 s"):
        run("run_for_ever", b"wait", Limits(wall_s=3))


def test_imports_no_module_that_is_not_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EDGES 3: a module that a file names is not imported, even where nobody sees the error."""
    marker = tmp_path / "marker"
    (tmp_path / "trapped.py").write_text(f"open({str(marker)!r}, 'w')\n")
    support = Path(__file__).parent / "support"
    monkeypatch.setenv("PYTHONPATH", f"{support}:{tmp_path}")
    with pytest.raises(SandboxError, match="refused: import of trapped"):
        run("import_module", "trapped")
    assert not marker.exists()
    assert run("import_module", "no_such_module").result == "swallowed"
    assert run("import_module", "zipapp").result == "imported"
    assert run("import_module", "yaml", Limits(packages=("yaml",))).result == "imported"
