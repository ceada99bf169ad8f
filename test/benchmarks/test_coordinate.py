"""The benchmark of coordination: its load, and a short run of it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import coordinate
from benchmarks.cpu_hogs import CpuHogs
from jetson_dnn_rt.errors import ConfigurationError

TIMEOUT_S = 120.0


def wait(condition: Callable[[], Any]) -> Any:
    end_s = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < end_s
        time.sleep(0.005)
    return found


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_load_comes_and_goes_and_nothing_is_left() -> None:
    with CpuHogs(2) as load:
        load.play([(0.0, False), (60.0, True)])
        pids = wait(lambda: load.pids if len(load.pids) == 2 else None)
        wait(lambda: all(is_alive(pid) for pid in pids))
        load.finish(now=True)
        assert not any(is_alive(pid) for pid in pids)
        load.play([(0.05, True), (0.0, False)])
        load.finish()
        assert load.starts == 4
        assert load.pids == ()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_the_load_ends_with_the_benchmark_however_that_ends() -> None:
    code = (
        "import sys, time\n"
        "from benchmarks.cpu_hogs import CpuHogs\n"
        "load = CpuHogs(1)\n"
        "load.play([(60.0, True)])\n"
        "while not load.pids: time.sleep(0.005)\n"
        "print(load.pids[0], flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert is_alive(pid)
    process.kill()
    process.wait(TIMEOUT_S)
    process.stdout.close()
    wait(lambda: not is_alive(pid))


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    coordinate.add_arguments(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rounds", "0"),
        ("--hogs", "-1"),
        ("--period-factor", "0"),
        ("--confidence", "1"),
        ("--variants", "full@openvino-fp32"),
    ],
)
def test_arguments_that_cannot_be_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError):
        coordinate.run(parse("--engine-cache", str(tmp_path), *arguments))


@pytest.mark.slow
def test_every_frame_of_every_policy_is_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("openvino", reason="openvino is not installed")
    monkeypatch.setattr(coordinate, "PHASES", ((0.3, False), (0.3, True)))
    variants = "full@onnxruntime-fp32,full@openvino-fp32"
    result: dict[str, Any] = coordinate.run(
        parse(
            *("--engine-cache", str(tmp_path), "--variants", variants, "--stages", "2"),
            *("--rounds", "1", "--hogs", str(len(os.sched_getaffinity(0)))),
            *("--period-factor", "4"),
        )
    )
    assert set(result["policies"]) == set(coordinate.POLICIES)
    windows = {figures["frames"] for figures in result["policies"].values()}
    (frames,) = windows  # the same for all
    assert frames == 2 * int(600.0 / result["period_ms"])
    for name, figures in result["policies"].items():
        assert sum(figures["outcomes"].values()) == frames
        assert figures["met_ratio"] == figures["outcomes"].get("met", 0) / frames
        # Both variants are the full network, so whatever was met is what the reference says.
        assert figures["accuracy"] > 0.99
        assert sum(figures["stages_by_variant"].values()) > 0
        if name.startswith("static"):
            assert figures["switches_per_s"] == 0.0
    horizon, fast = result["policies"]["horizon"], result["policies"]["static-fast"]
    met = horizon["met_ratio"] >= coordinate.MET_BAR
    assert result["passed"] == (met and horizon["accuracy"] > fast["accuracy"])
    table = coordinate.format_table(result)
    assert all(name in table for name in coordinate.POLICIES)
