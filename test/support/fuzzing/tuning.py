# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tuning databases, read and applied to the network that they are for."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvm_networks import make_small, tune_model

from fuzzing.formats import Files, Format
from fuzzing.mutations import spoil_bytes, spoil_tree
from fuzzing.texts import spoil_json
from jetson_dnn_rt.tvm.compile import compile_module, schedule
from jetson_dnn_rt.tvm.database import HEADER, RECORDS, WORKLOADS, TuningDatabase
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.target import find_local_target


class Records(Format):
    """Kernels, schedules and header; those that are taken are applied and compiled."""

    packages = ("torch", "tvm", "xgboost")
    starts_python = True

    def __init__(self) -> None:
        self._target = find_local_target(1)
        self._lowered: Any = None

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        database = TuningDatabase(self._target)
        tune_model(make_small(), database, trials=1)
        return {"small network": database.to_files()}

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        """Kernels that are JSON of another form."""
        (files,) = sound.values()
        texts = {
            "no nodes": b"{}",
            "a node of no type": b'{"nodes": [{}]}',
            "a node that is a list": b'{"nodes": [[]]}',
            "lists in each other": b"[" * 5000,
        }
        return {
            name: {**files, WORKLOADS: json.dumps(["1", _pack(text)]).encode()}
            for name, text in texts.items()
        }

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        name = rng.choice((HEADER, WORKLOADS, WORKLOADS, RECORDS, RECORDS, RECORDS, RECORDS))
        data = files[name]
        if name == HEADER:
            return {**files, name: spoil_json(data, b"", rng)}
        lines = data.splitlines()
        if not lines or rng.random() < 0.2:
            return {**files, name: spoil_bytes(data, rng, other[name])}
        place = rng.randrange(len(lines))
        if rng.random() < 0.1:
            # A record of another kernel, or none.
            lines[place] = rng.choice((*lines, b""))
        elif name == WORKLOADS:
            lines[place] = _spoil_kernel(lines[place], rng)
        else:
            lines[place] = _spoil_record(lines[place], rng.choice(lines), rng)
        return {**files, name: b"".join(line + b"\n" for line in lines)}

    def read(self, folder: Path, work: Path) -> int:
        if self._lowered is None:
            self._lowered = lower(make_small(), "fp32", self._target)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        database = TuningDatabase.from_files(files, self._target)
        scheduled = schedule(self._lowered, self._target, database)
        compile_module(scheduled, self._target)
        return database.trials


def _pack(graph: bytes) -> str:
    return base64.b64encode(len(graph).to_bytes(8, "little") + graph).decode()


def _spoil_record(line: bytes, other: bytes, rng: random.Random) -> bytes:
    """Change a schedule: in half of all cases its decisions, which every checker lets through."""
    try:
        record = json.loads(line)
        if rng.random() < 0.5:
            trace = record[1][0]
            trace[1] = spoil_tree(trace[1], rng, json.loads(other)[1][0][1])
        else:
            record = spoil_tree(record, rng, json.loads(other))
        return json.dumps(record).encode()
    except (ValueError, LookupError, TypeError):  # spoilt before
        return spoil_bytes(line, rng, other)


def _spoil_kernel(line: bytes, rng: random.Random) -> bytes:
    """Change the graph of a kernel, which is packed with its length."""
    try:
        number, packed = json.loads(line)
        graph = base64.b64decode(packed)[8:]
        graph = spoil_json(graph, b"", rng)
        return json.dumps([number, _pack(graph)]).encode()
    except (ValueError, TypeError):  # spoilt before
        return spoil_bytes(line, rng)
