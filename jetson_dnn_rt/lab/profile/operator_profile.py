# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Attribution of a variant's time to operators and kernels, in a pass with the PyTorch profiler.

The profiler slows everything down, small operators most of all. So its times show where the time
goes, not how long a frame takes; that is measured without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.measuring.timing import DISCARDED_RUNS
from jetson_dnn_rt.variants.running.pipeline import Pipeline


@dataclass(frozen=True)
class OperatorTime:
    """Time of an operator of torch, or of a kernel of a GPU."""

    name: str  # ``aten::mkldnn_convolution``
    device: str  # ``cpu`` or ``cuda``
    calls: float  # per frame
    self_ms: float  # per frame, without the operators that it calls
    share: float  # of the time of all operators on that device, in [0, 1]


def profile_operators(
    pipeline: Pipeline, frames: Sequence[Frame], runs: int, trace: Path | None = None
) -> list[OperatorTime]:
    """Run `runs` >= 1 frames, taken in turn, under the PyTorch profiler, after some without it.

    `trace` is the path of a Chrome trace (chrome://tracing, ui.perfetto.dev): stages, operators,
    kernels. The times of each device are sorted, longest first. `ConfigurationError` for a variant
    that does not run on torch.
    """
    if pipeline.spec.backend != "torch":
        raise ConfigurationError(
            f"the PyTorch profiler sees nothing of {pipeline.spec.backend}; fix: profile a "
            "variant of torch"
        )
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    def run(index: int) -> None:
        work = Work(frames[index % len(frames)])
        for stage in pipeline.stages:
            with record_function(stage.name):
                stage.run(work)

    for index in range(DISCARDED_RUNS):
        run(index)
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from kineto, about its own set-up
        with profile(activities=activities) as profiler:
            for index in range(runs):
                run(index)
        events = list(profiler.key_averages())
        if trace is not None:
            trace.unlink(missing_ok=True)
            profiler.export_chrome_trace(str(trace))
            if not trace.is_file():  # the profiler itself reports that on stderr only
                raise ModelError(f"cannot write {trace}")
    stages = {stage.name for stage in pipeline.stages}
    return [
        *_list_times(events, "cpu", "self_cpu_time_total", runs, stages),
        *_list_times(events, "cuda", "self_device_time_total", runs, stages),
    ]


def _list_times(
    events: Sequence[Any], device: str, field: str, runs: int, stages: set[str]
) -> list[OperatorTime]:
    # Before torch 2.4 the field had the device's name.
    old = field.replace("device", "cuda")
    chosen = []
    for event in events:
        taken_us = float(getattr(event, field, getattr(event, old, 0.0)))
        # Our marks and the profiler's own are not operators of the network.
        if taken_us > 0.0 and event.key not in stages and not event.key.startswith("Profiler"):
            chosen.append((taken_us, event.key, event.count))
    total_us = sum(taken_us for taken_us, _, _ in chosen)
    return [
        OperatorTime(key, device, count / runs, taken_us / runs / 1e3, taken_us / total_us)
        for taken_us, key, count in sorted(chosen, reverse=True)
    ]
