# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Processes that store and load one entry of the library at once, again and again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from library_entries import make_key

from jetson_dnn_rt.variants.library.library import Library

TIMEOUT_S = 300.0
_STORE_AGAIN_AND_AGAIN = """
import json, sys, time
from pathlib import Path
from jetson_dnn_rt.safety.records import read_record
from jetson_dnn_rt.variants.library.library import EntryKey, Library

library, number = Library(Path(sys.argv[1])), sys.argv[2]
key = read_record(EntryKey, json.loads(sys.argv[3]))
longest_s, missed = 0.0, 0
print("ready", flush=True)
sys.stdin.readline()
for index in range(int(sys.argv[4])):
    data = f"{number} {index}".encode() * 500
    begin_s = time.monotonic()
    assert library.store(key, {"a": data, "b": data[::-1]}, {}).path is not None
    found = library.load(key)
    longest_s = max(longest_s, time.monotonic() - begin_s)
    # None for the moment in which another one changes the entry; never a half one.
    missed += found is None
    assert found is None or found.files["a"] == found.files["b"][::-1]
print(json.dumps({"longest_s": longest_s, "missed": missed}))
"""


def storm(root: Path, processes: int, rounds: int) -> tuple[dict[str, Any], list[str]]:
    """Let the storm pass; returns its figures, and what is not as it must be."""
    library, key = Library(root), make_key()
    command = [sys.executable, "-c", _STORE_AGAIN_AND_AGAIN, root]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    words = json.dumps(asdict(key))
    running = [
        subprocess.Popen([*command, str(n), words, str(rounds)], text=True, **pipes)  # type: ignore[call-overload]
        for n in range(processes)
    ]
    found: list[str] = []
    figures: list[dict[str, Any]] = []
    try:
        for process in running:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
        begin_s = time.monotonic()
        # `communicate` would start one after the other.
        for process in running:
            process.stdin.write("go\n")
            process.stdin.flush()
        for number, process in enumerate(running):
            out, errors = process.communicate(timeout=TIMEOUT_S)
            # Nothing is reported either: no half entry was seen, every store found its place.
            if process.returncode or errors:
                found.append(f"process {number} of the storm: {errors[-500:]}")
            else:
                figures.append(json.loads(out))
    except subprocess.TimeoutExpired:
        found.append("the processes of the storm wait for each other")
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    took_s = time.monotonic() - begin_s
    entry = library.load(key)
    if entry is None or not entry.files["a"].endswith(f" {rounds - 1}".encode()):
        found.append("the last entry is not there")
    if problems := [listing.problem for listing in library.entries() if listing.problem]:
        found.append(f"damaged: {problems}")
    if left := [path.name for path in (root / ".tmp").iterdir()]:
        found.append(f"left over: {left}")
    return {
        "stores": processes * rounds,
        "took_s": round(took_s, 2),
        "longest_s": max((one["longest_s"] for one in figures), default=0.0),
        "loads_that_found_nothing": sum(one["missed"] for one in figures),
    }, found
