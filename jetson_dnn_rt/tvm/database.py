# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tuning results: MetaSchedule's records, and the target that they apply to."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jetson_dnn_rt.safety.records import Count, read_record, within
from jetson_dnn_rt.safety.sandbox import Limits, SandboxError, run_restricted
from jetson_dnn_rt.tvm.records import (
    DatabaseError,
    check_records,
    check_workloads,
    register_intrinsics,
)
from jetson_dnn_rt.tvm.target import TvmTarget

if TYPE_CHECKING:
    import tvm

__all__ = ["FILES", "HEADER", "RECORDS", "WORKLOADS", "DatabaseError", "TuningDatabase"]

WORKLOADS, RECORDS, HEADER = FILES = ("workloads.json", "records.json", "target.json")

# Modules that TVM imports only when it needs them.
_PACKAGES = ("numpy", "tvm", "tvm_ffi")

_readable: set[str] = set()
"""Digests of databases that a child has read, or this process has written."""

# Kernels are compared without weight values: schedules do not depend on them.
_EQUALITY = "ignore-tensor"


@dataclass(frozen=True)
class _Header:
    """Data stored beside MetaSchedule's records."""

    target: str
    tvm: str
    seconds: Annotated[float, within(0, 1e12)]  # that tuning took
    trials: dict[str, Count]  # candidates measured per kernel, including failed ones
    exhausted: tuple[str, ...]  # kernels that have no more candidates


class TuningDatabase:
    """Records for one target, of one or more networks: kernels are matched by structure.

    `seconds` is how long tuning took so far; `files` are the records to begin with.
    """

    def __init__(self, target: TvmTarget, files: Mapping[str, bytes] | None = None) -> None:
        from tvm.s_tir.meta_schedule.database import JSONDatabase

        self.target = target
        self.seconds = 0.0
        self._trials: dict[str, int] = {}
        self._exhausted: set[str] = set()
        self._folder = Path(tempfile.mkdtemp(prefix="jetson_dnn_rt-tuning-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        for name, data in (files or {}).items():
            (self._folder / name).write_bytes(data)
        paths = (str(self._folder / name) for name in (WORKLOADS, RECORDS))
        self.records: Any = JSONDatabase(*paths, module_equality=_EQUALITY)

    @staticmethod
    def from_files(files: Mapping[str, bytes], target: TvmTarget) -> TuningDatabase:
        """Read the output of `to_files`.

        What was not written by this process is read in a child first, for some seconds. Raises
        `DatabaseError`, with the reason, when it is for another target or another TVM, is damaged,
        or a record could do more than rearrange a kernel.
        """
        import tvm

        missing = [name for name in FILES if name not in files]
        if missing:
            raise DatabaseError(f"the tuning database lacks {', '.join(missing)}")
        try:
            header = read_record(_Header, json.loads(files[HEADER]))
        except (ValueError, RecursionError) as error:
            raise DatabaseError(f"{HEADER} of the tuning database is damaged: {error}") from error
        if header.target != target.text:
            raise DatabaseError(
                f"the tuning database is for the target {header.target}, here is {target.text}: "
                "its kernels would be slow or would not run; tune on a board of the same kind"
            )
        if header.tvm != tvm.__version__:
            raise DatabaseError(
                f"the tuning database is of TVM {header.tvm}, here is {tvm.__version__}: tune "
                "again"
            )
        checked = {
            WORKLOADS: check_workloads(files[WORKLOADS]),
            RECORDS: check_records(files[RECORDS], target.to_tvm()),
        }
        digest = _digest(files)
        if digest not in _readable:
            _try_in_child(checked)
            _readable.add(digest)
        register_intrinsics(checked[RECORDS])
        try:
            database = TuningDatabase(target, checked)
        except Exception as error:  # TVM's errors have no class in common
            raise DatabaseError(f"the tuning database is damaged: {error}") from error
        database.seconds, database._trials = header.seconds, header.trials
        database._exhausted = set(header.exhausted)
        return database

    def to_files(self) -> dict[str, bytes]:
        """Contents of the database's files, by name."""
        import tvm

        done = tuple(sorted(self._exhausted))
        seconds = round(self.seconds, 3)
        header = _Header(self.target.text, tvm.__version__, seconds, self._trials, done)
        text = json.dumps(asdict(header), indent=1, sort_keys=True) + "\n"
        files = {HEADER: text.encode()}
        for name in (WORKLOADS, RECORDS):
            # MetaSchedule creates them with the first record.
            file = self._folder / name
            files[name] = file.read_bytes() if file.exists() else b""
        _readable.add(_digest(files))
        return files

    @property
    def trials(self) -> int:
        """Measured candidates, including failed ones."""
        return sum(self._trials.values())

    def count_trials(self, kernel: tvm.IRModule) -> int:
        """Number of measured candidates of a kernel."""
        return self._trials.get(_hash(kernel), 0)

    def is_exhausted(self, kernel: tvm.IRModule) -> bool:
        """Whether a kernel has no more candidates."""
        return _hash(kernel) in self._exhausted

    def mark_exhausted(self, kernel: tvm.IRModule) -> None:
        """Record that a kernel has no more candidates."""
        self._exhausted.add(_hash(kernel))

    def add(self, kernel: tvm.IRModule, candidate: Any, seconds: float) -> None:
        """Store a measured candidate and its time, infinite if it failed; each is a trial."""
        from tvm.s_tir import meta_schedule

        key = _hash(kernel)
        self._trials[key] = self._trials.get(key, 0) + 1
        if seconds == math.inf:
            return
        self.records.commit_tuning_record(
            meta_schedule.database.TuningRecord(
                candidate.sch.trace,
                self.records.commit_workload(kernel),
                [seconds],
                self.target.to_tvm(),
                candidate.args_info,
            )
        )

    def find_best_s(self, kernel: tvm.IRModule) -> float:
        """Time of a kernel's best schedule in seconds; infinite where there is none."""
        if not self.records.has_workload(kernel):
            return math.inf
        best = self.records.get_top_k(self.records.commit_workload(kernel), 1)
        return float(best[0].run_secs[0]) if best else math.inf


def _try_in_child(files: Mapping[str, bytes]) -> None:
    """Let a child process read checked files first: TVM crashes at some that are damaged."""
    data = json.dumps([files[name].decode() for name in (WORKLOADS, RECORDS)]).encode()
    seconds = 120 + files[RECORDS].count(b"\n") // 20
    limits = Limits(cpu_s=seconds, wall_s=2.0 * seconds, packages=_PACKAGES)
    try:
        run_restricted("jetson_dnn_rt.tvm.database_child:read", data, limits)
    except SandboxError as error:
        raise DatabaseError(
            f"the tuning database is damaged: TVM cannot read it in a process without rights: "
            f"{error}"
        ) from error


def _digest(files: Mapping[str, bytes]) -> str:
    return hashlib.sha256(b"\0".join((files[WORKLOADS], files[RECORDS]))).hexdigest()


def _hash(kernel: tvm.IRModule) -> str:
    import tvm_ffi

    return format(tvm_ffi.structural_hash(kernel) & 0xFFFFFFFFFFFFFFFF, "016x")
