"""Results of tuning: MetaSchedule's records, and the target that they are for."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.tvm.records import DatabaseError, check_records, check_workloads
from jetson_dnn_rt.tvm.target import TvmTarget

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import meta_schedule

__all__ = ["FILES", "HEADER", "RECORDS", "WORKLOADS", "DatabaseError", "TuningDatabase"]

WORKLOADS, RECORDS, HEADER = FILES = ("workloads.json", "records.json", "target.json")

# Kernels are compared without the values of weights: of those a schedule knows nothing.
_EQUALITY = "ignore-tensor"


class TuningDatabase:
    """Records for one target, of one or more networks: kernels are found by form.

    `seconds` is how long tuning took so far.
    """

    def __init__(self, target: TvmTarget) -> None:
        self.target = target
        self.seconds = 0.0
        self._trials: dict[str, int] = {}
        self._exhausted: set[str] = set()
        self._folder = Path(tempfile.mkdtemp(prefix="jetson_dnn_rt-tuning-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._open()

    def _open(self) -> None:
        from tvm.s_tir import meta_schedule

        folder = self._folder
        self.records: meta_schedule.database.JSONDatabase = meta_schedule.database.JSONDatabase(
            str(folder / WORKLOADS), str(folder / RECORDS), module_equality=_EQUALITY
        )

    @staticmethod
    def from_files(files: Mapping[str, bytes], target: TvmTarget) -> TuningDatabase:
        """Read what `to_files` gave.

        Raises `DatabaseError` when it is for another target or another TVM, damaged, or a record
        could do more than rearrange a kernel; says which.
        """
        import tvm

        missing = [name for name in FILES if name not in files]
        if missing:
            raise DatabaseError(f"the tuning database lacks {', '.join(missing)}")
        try:
            header = json.loads(files[HEADER])
            there, version = str(header["target"]), str(header["tvm"])
            seconds = float(header["seconds"])
            if not 0 <= seconds < math.inf:
                raise ValueError(f"seconds is {seconds}")
            trials = {str(key): int(value) for key, value in header["trials"].items()}
            exhausted = {str(key) for key in header["exhausted"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DatabaseError(
                f"{HEADER} of the tuning database is damaged: {error!r}"
            ) from error
        if there != target.text:
            raise DatabaseError(
                f"the tuning database is for the target {there}, here is {target.text}: its "
                "kernels would be slow or would not run; tune on a board of the same kind"
            )
        if version != tvm.__version__:
            raise DatabaseError(
                f"the tuning database is of TVM {version}, here is {tvm.__version__}: tune again"
            )
        checked = {
            WORKLOADS: check_workloads(files[WORKLOADS]),
            RECORDS: check_records(files[RECORDS], target.to_tvm()),
        }
        database = TuningDatabase(target)
        for name, data in checked.items():
            Path(database._folder, name).write_bytes(data)
        try:
            database._open()
        except Exception as error:  # TVM's errors have no class in common
            raise DatabaseError(f"the tuning database is damaged: {error}") from error
        database.seconds, database._trials = seconds, trials
        database._exhausted = exhausted
        return database

    def to_files(self) -> dict[str, bytes]:
        """Contents of the files that hold all of it, by name."""
        import tvm

        header = {
            "target": self.target.text,
            "tvm": tvm.__version__,
            "seconds": round(self.seconds, 3),
            "trials": self._trials,
            "exhausted": sorted(self._exhausted),
        }
        folder = self._folder
        files = {HEADER: (json.dumps(header, indent=1, sort_keys=True) + "\n").encode()}
        for name in (WORKLOADS, RECORDS):
            # MetaSchedule makes them with the first record.
            file = folder / name
            files[name] = file.read_bytes() if file.exists() else b""
        return files

    @property
    def trials(self) -> int:
        """Measured candidates, failed ones among them."""
        return sum(self._trials.values())

    def count_trials(self, kernel: tvm.IRModule) -> int:
        """How many candidates of a kernel were measured."""
        return self._trials.get(_hash(kernel), 0)

    def is_exhausted(self, kernel: tvm.IRModule) -> bool:
        """Whether a kernel has no more candidates."""
        return _hash(kernel) in self._exhausted

    def mark_exhausted(self, kernel: tvm.IRModule) -> None:
        """Note that a kernel has no more candidates."""
        self._exhausted.add(_hash(kernel))

    def add(self, kernel: tvm.IRModule, candidate: Any, seconds: float | None) -> None:
        """Keep a measured candidate and its time; None where it failed: it counts as a trial."""
        from tvm.s_tir import meta_schedule

        key = _hash(kernel)
        self._trials[key] = self._trials.get(key, 0) + 1
        if seconds is None:
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

    def find_best_s(self, kernel: tvm.IRModule) -> float | None:
        """Time of a kernel's best schedule in seconds; None where there is none."""
        if not self.records.has_workload(kernel):
            return None
        best = self.records.get_top_k(self.records.commit_workload(kernel), 1)
        return float(best[0].run_secs[0]) if best else None


def _hash(kernel: tvm.IRModule) -> str:
    import tvm_ffi

    return format(tvm_ffi.structural_hash(kernel) & 0xFFFFFFFFFFFFFFFF, "016x")
