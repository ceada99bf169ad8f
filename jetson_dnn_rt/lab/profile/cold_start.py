# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cold starts: times of the first frames of a fresh process, which runs this module.

The file cache of the system stays warm: only root could drop it. The imports, the model, the
memory, and the kernels that libraries choose in their first run are cold.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.safety.children import child_environment, python_command
from jetson_dnn_rt.safety.records import read_record

FRAMES = 10  # first frames of each process

_LIMIT_S = 600.0


@dataclass(frozen=True)
class ColdSpec:
    """Variant of a model that a fresh process loads, with its options."""

    model: str
    variant: str
    threads: int = 1
    stages: int = 0
    runs: int = 0
    finest: bool = False
    weights: str = "DEFAULT"
    library: str | None = None
    amp_lists: str = ""
    input_size: tuple[int, int] | None = None
    trust: bool = False


@dataclass(frozen=True)
class ColdStart:
    """One fresh process; all times are on the steady clock."""

    begin_ns: int
    imported_ns: int  # Python and the libraries are loaded
    model_ns: int  # the model is loaded
    variant_ns: int  # the variant is loaded
    stages: tuple[str, ...]
    stamps_ns: tuple[tuple[int, ...], ...]  # by frame: before the first stage, and after each
    sequences: tuple[int, ...]  # of the frames

    @property
    def phases_ms(self) -> dict[str, float]:
        """Imports, model, variant, first and second frame, and all until the first result."""
        first, second = (row[-1] - row[0] for row in self.stamps_ns[:2])
        times = {
            "imports": self.imported_ns - self.begin_ns,
            "model": self.model_ns - self.imported_ns,
            "variant": self.variant_ns - self.model_ns,
            "first_frame": first,
            "second_frame": second,
            "until_first_result": self.stamps_ns[0][-1] - self.begin_ns,
        }
        return {name: time_ns / 1e6 for name, time_ns in times.items()}


def start_cold(spec: ColdSpec, frames: Sequence[Frame]) -> ColdStart:
    """Start a process that loads a variant and runs the first `FRAMES` of the frames, in turn.

    `ModelError` with the last line of its stderr if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="cold-") as folder:
        path = Path(folder) / "frames.npz"
        chosen = [frames[i % len(frames)] for i in range(FRAMES)]
        arrays = {f"image_{i}": np.asarray(frame.image) for i, frame in enumerate(chosen)}
        np.savez(path, **arrays)  # type: ignore[arg-type]
        encodings = [frame.encoding for frame in chosen]
        request = json.dumps({"spec": asdict(spec), "frames": str(path), "encodings": encodings})
        begin_ns = time.monotonic_ns()
        try:
            done = subprocess.run(
                python_command("jetson_dnn_rt.lab.profile.cold_start", request),
                env=child_environment(),
                capture_output=True, text=True, timeout=_LIMIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise ModelError(
                f"{spec.variant} of {spec.model}: no frame within {_LIMIT_S:g} s of a cold start"
            ) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise ModelError(
            f"{spec.variant} of {spec.model} fails in a fresh process (exit code "
            f"{done.returncode}): {last}"
        )
    fields = json.loads(done.stdout.splitlines()[-1])
    sequences = [frame.sequence for frame in chosen]
    return read_record(ColdStart, {"begin_ns": begin_ns, "sequences": sequences, **fields})


def main(text: str) -> None:
    """Load, run, and print the times as one line of JSON; called in the fresh process."""
    from jetson_dnn_rt.clock import SteadyClock
    from jetson_dnn_rt.config.task import NO_CACHE, TaskConfig
    from jetson_dnn_rt.models.sources.registry import load_model
    from jetson_dnn_rt.runtime.task import Task
    from jetson_dnn_rt.tasks import Work

    request = json.loads(text)
    spec = read_record(ColdSpec, request["spec"])
    clock = SteadyClock()
    with np.load(request["frames"], allow_pickle=False) as arrays:
        frames = [
            Frame(arrays[f"image_{i}"], encoding, 0, i)
            for i, encoding in enumerate(request["encodings"])
        ]
    imported_ns = clock.now_ns()
    model = load_model(
        spec.model, weights=spec.weights, input_size=spec.input_size, trust=spec.trust
    )
    model_ns = clock.now_ns()
    config = TaskConfig(
        variants=(spec.variant,),
        stages=spec.stages,
        finest_stages=spec.finest,
        amp_lists=spec.amp_lists,
        engine_cache=spec.library or NO_CACHE,
    )
    task = Task(
        config,
        threads=spec.threads,
        clock=clock,
        model=model,
        frames=(),
        runs={spec.variant: spec.runs} if spec.runs else None,
        keep_refused=True,
    )
    pipeline = task.variants.pipelines[spec.variant]
    variant_ns = clock.now_ns()
    stamps = []
    for frame in frames:
        work = Work(frame)
        row = [clock.now_ns()]
        for stage in pipeline.stages:
            stage.run(work)
            row.append(clock.now_ns())
        stamps.append(row)
    task.close()
    fields = {
        "imported_ns": imported_ns,
        "model_ns": model_ns,
        "variant_ns": variant_ns,
        "stages": [stage.name for stage in pipeline.stages],
        "stamps_ns": stamps,
    }
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
