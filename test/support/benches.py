# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Benchmarks as their command runs them."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import main as harness
from benchmarks.harness.tables import to_text


def _split(options: tuple[str, ...]) -> list[str]:
    return [word for o in options for word in (o.split() if o.startswith("-") else [o])]


def parse(name: str, *options: str) -> argparse.Namespace:
    """The options of a benchmark; texts that begin with a dash are split at spaces."""
    return harness.parse(harness.load(name), _split(options))


def run(name: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a benchmark, which has a table too."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = harness.main([name, *_split(options), "--json"])
    result = json.loads(out.getvalue().splitlines()[-1])
    assert code == (1 if result["passed"] is False else 0)
    assert show(name, result)
    return code, result


def fake_peer() -> list[str]:
    """Options that make `fake_peer.py` a further side."""
    program = Path(__file__).with_name("fake_peer.py")
    # By a shell that stays: as people write it, and all of it has to end.
    shell = f"{shlex.join([sys.executable, str(program)])}; true"
    command = shlex.join(["bash", "-c", shell])
    return ["--peer", command, "--peer-topic", "/peer/detections"]


def show(name: str, result: Any) -> str:
    """The table of a result."""
    return to_text(harness.load(name).report(result))
