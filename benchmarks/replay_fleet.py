"""The fleet of `bench replay`: two Dask workers on this machine, one is killed half-way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.protocol import BenchmarkError
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety.children import child_environment, safe_spawning

WORKERS = 2
_POLL_S = 0.2


def evaluate_on_fleet(
    command: Callable[[str], Sequence[str]], results: Path, lines: int, limit_s: float
) -> tuple[dict[str, Any], int]:
    """Run an evaluation on a Dask cluster of two processes; kill one when half is done.

    Parameters
    ----------
    command : callable
        Makes the command line of `evaluate --json` from the scheduler's address.
    results : Path
        Its ``results.jsonl``, which grows.
    lines : int
        How many lines that will have.
    limit_s : float
        It must end in this time.

    Returns
    -------
    tuple of dict, int
        What it printed, and the lines that were there when the worker was killed.

    Raises
    ------
    ConfigurationError
        When Dask is missing.
    BenchmarkError
        When it fails, or ended before a worker could be killed.
    """
    try:
        from distributed import LocalCluster
    except ImportError as error:
        raise ConfigurationError(
            "fleets need Dask, which is not installed: pip install 'jetson_dnn_rt[fleet]'"
        ) from error
    with (
        safe_spawning(),
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            host="127.0.0.1",
        ) as cluster,
    ):
        arguments = command(cluster.scheduler_address)
        child = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, text=True, env=child_environment()
        )
        try:
            at = _kill_half_way(child, cluster, results, lines, limit_s)
            out, _ = child.communicate(timeout=limit_s)
        finally:
            child.kill()
            child.wait()
    if child.returncode not in (0, 1) or not out.splitlines():
        raise BenchmarkError(f"{' '.join(arguments[3:])} ended with {child.returncode}")
    return json.loads(out.splitlines()[-1]), at


def _kill_half_way(
    child: subprocess.Popen[str], cluster: Any, results: Path, lines: int, limit_s: float
) -> int:
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s and child.poll() is None:
        done = results.read_bytes().count(b"\n") if results.is_file() else 0
        if done >= lines // 2:
            worker = next(iter(cluster.workers.values()))
            os.kill(worker.pid, signal.SIGKILL)
            print(f"replay: killed a worker after {done} of {lines} frames", file=sys.stderr)
            return done
        time.sleep(_POLL_S)
    raise BenchmarkError("the evaluation ended before a worker could be killed")
