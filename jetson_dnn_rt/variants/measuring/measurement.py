# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Measurements of a variant: time per stage, memory, agreement; and whether it is of use."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone, tzinfo
from typing import Annotated, Any, Protocol

from jetson_dnn_rt.backends.memory import used_bytes
from jetson_dnn_rt.backends.registry import TENSORRT
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.config.task import LEAST_AGREEMENT
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.safety.records import Count, Rule, at_most, read_record
from jetson_dnn_rt.tasks import Stage, Work
from jetson_dnn_rt.variants.measuring.agreement import Agreement
from jetson_dnn_rt.variants.measuring.cancelling import measure_cancels
from jetson_dnn_rt.variants.measuring.timing import measure_in_turn
from jetson_dnn_rt.variants.spec import VariantSpec

KEPT_TIMES = 1000
"""Single times kept of each stage, the last ones; the quantiles are of all."""

MARGIN = 0.02
"""A variant counts as faster or lighter from this share on: two measurements of one variant on a
quiet machine differ by less."""


@dataclass(frozen=True)
class TimeDistribution:
    """Execution times of a stage, or of a whole frame (``total``), in nanoseconds.

    Order statistics without interpolation: each is a time that occurred; the mean is rounded up.
    """

    name: str
    count: Annotated[Count, Rule("at least 1", bool)]
    mean_ns: Count
    p50_ns: Count
    p90_ns: Count
    p99_ns: Count
    max_ns: Count
    times_ns: Annotated[tuple[Count, ...], at_most(KEPT_TIMES)] = field(repr=False)  # in order

    @staticmethod
    def of(name: str, times_ns: Sequence[int]) -> TimeDistribution:
        """Distribution of at least one time; ValueError for none."""
        if not times_ns:
            raise ValueError(f"times_ns of {name} must hold at least one time")
        ordered = sorted(times_ns)

        def quantile(share: float) -> int:
            return ordered[math.ceil(share * len(ordered)) - 1]

        return TimeDistribution(
            name,
            len(ordered),
            -(-sum(ordered) // len(ordered)),
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
            ordered[-1],
            tuple(times_ns[-KEPT_TIMES:]),
        )


def _time_zone(date: str) -> tzinfo | None:
    return datetime.fromisoformat(date).tzinfo


@dataclass(frozen=True)
class Measurement:
    """Measured figures of a variant on one machine."""

    variant: Annotated[str, Rule("the name of a variant", VariantSpec.parse)]
    total: TimeDistribution  # a frame, from its pixels to its result
    stages: tuple[TimeDistribution, ...]
    memory_bytes: Count  # resident memory that closing it released
    device_memory_bytes: Count  # the same on the GPU; 0 on the CPU
    parameters: Count | None  # of the network; None where the graph cannot be counted
    parameter_bytes: Count | None  # in its precision: 4 bytes each, 2 in fp16 and bf16, 1 in int8
    macs: Count | None  # per frame
    agreement: Agreement | None  # with the full model; None where nothing was compared
    frames: str  # their source, as in `sample_frames`
    frame_size: tuple[Count, Count]  # height and width of the first one in pixels
    threads: Count  # of one inference
    machine: dict[str, Any]  # as `describe_machine` gives it
    date: Annotated[str, Rule("a date with a time zone", _time_zone)]
    # How long a run takes to end when told to; None where it cannot.
    cancel: TimeDistribution | None = None
    # Why it is of no use, with the figures; empty = accepted. Agreement aside: see `find_refusal`.
    refused: str = ""

    def refuse(self, reason: str) -> Measurement:
        """A copy, refused for a reason; accepted with an empty one."""
        return replace(self, refused=reason)

    def to_json(self) -> dict[str, Any]:
        """Values that `json` writes; times in ns, sizes in bytes."""
        return asdict(self)

    @staticmethod
    def from_json(value: object) -> Measurement:
        """Read the output of `to_json`; raises `ValueError`, which names what is wrong."""
        return read_record(Measurement, value, "measurement")


class Runnable(Protocol):
    """Interface of what is measured: a `jetson_dnn_rt.variants.running.pipeline.Pipeline`."""

    @property
    def stages(self) -> Sequence[Stage]:
        """In their order."""

    def close(self) -> None:
        """Release the memory."""


@dataclass(frozen=True)
class Trial:
    """Results of running a variant."""

    results: tuple[Result, ...]  # one for each frame
    total: TimeDistribution
    stages: tuple[TimeDistribution, ...]
    memory_bytes: int  # that closing it released
    device_memory_bytes: int
    rival: TimeDistribution | None = None  # whole frames of the variant that ran in turn with it
    cancel: TimeDistribution | None = None  # see `Measurement`


def try_variant(
    build: Callable[[], Runnable],
    frames: Sequence[Frame],
    *,
    runs: int,
    clock: Clock,
    rival: Runnable | None = None,
    device: str = "cpu",
) -> Trial:
    """Build a variant, run it on frames, time it, and close it.

    Parameters
    ----------
    build : callable
        Makes it; nothing else may hold a reference, or its memory is not seen.
    frames : sequence of Frame
        At least one.
    runs : int
        Timed runs, >= 1, after one run of each frame for its result.
    rival : Runnable, optional
        A variant to compare with: timed in turn with it, and left open.
    device : str
        ``cpu`` or ``cuda``: where its memory is.

    Raises
    ------
    ValueError
        When there is no frame or no run.
    ModelError
        When it fails on a frame or gives no result.
    """
    if not frames or runs < 1:
        raise ValueError(f"frames and runs must be at least one: {len(frames)}, {runs}")
    runnable: Runnable | None = build()
    assert runnable is not None
    try:
        results = _run(runnable.stages, frames)
        pair = [runnable.stages] if rival is None else [runnable.stages, rival.stages]
        names = ["total", *(stage.name for stage in runnable.stages)]
        try:
            rows, *others = measure_in_turn(pair, frames, runs, clock)
            cancels_ns = measure_cancels(runnable.stages, frames[0], rows)
        except Exception as error:
            raise ModelError(f"fails while it is timed: {error}") from error
        before = measure_memory(device)
    finally:
        runnable.close()
    runnable = None
    pair.clear()
    pairs = zip(before, measure_memory(device), strict=True)
    host, on_device = (max(0, used - left) for used, left in pairs)
    columns = [list(map(sum, rows)), *zip(*rows, strict=True)]
    total, *stages = map(TimeDistribution.of, names, columns)
    other = TimeDistribution.of("total", list(map(sum, others[0]))) if others else None
    cancel = TimeDistribution.of("cancel", cancels_ns) if cancels_ns else None
    return Trial(results, total, tuple(stages), host, on_device, other, cancel)


def measure_memory(device: str = "cpu") -> tuple[int, int]:
    """Bytes in use on the host, and also on the device; free memory is returned first.

    A variant's memory is what its `close` releases, not what making it takes: the first use of a
    back end grows the process by its pools and kernels, which stay. With the built-in detector
    making it took 66 MB (ONNX Runtime) and 72 MB (OpenVINO) the first time, 9.6 and 8.5 MB the
    third; closing it released 9.5 and 8.3 MB from the second time on. `device` is ``cpu`` or
    ``cuda``.
    """
    gc.collect()
    with contextlib.suppress(AttributeError):  # not glibc: its allocator decides
        ctypes.CDLL(None).malloc_trim(0)
    torch: Any = sys.modules.get("torch")
    if device == "cuda" and torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    host = used_bytes()
    return host, used_bytes(device) - host if device == "cuda" else 0


def _run(stages: Sequence[Stage], frames: Sequence[Frame]) -> tuple[Result, ...]:
    results = []
    try:
        for frame in frames:
            work = Work(frame)
            for stage in stages:
                stage.run(work)
            if work.result is None:
                raise ModelError("there is no result")
            results.append(work.result)
    except Exception as error:
        raise ModelError(f"fails on frame {len(results)}: {error}") from error
    return tuple(results)


def make_measurement(
    spec: VariantSpec,
    trial: Trial,
    *,
    agreement: Agreement | None,
    frames: str,
    frame_size: tuple[int, int],
    threads: int,
    parameters: int | None = None,
    macs: int | None = None,
) -> Measurement:
    """Make the measurement of a variant from a trial, with this machine and the present date."""
    size = {"fp16": 2, "bf16": 2, "int8": 1}.get(spec.precision, 4)
    return Measurement(
        variant=str(spec),
        total=trial.total,
        stages=trial.stages,
        memory_bytes=trial.memory_bytes,
        device_memory_bytes=trial.device_memory_bytes,
        parameters=parameters,
        parameter_bytes=None if parameters is None else size * parameters,
        macs=macs,
        agreement=agreement,
        frames=frames,
        frame_size=frame_size,
        threads=threads,
        machine=describe_machine(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        cancel=trial.cancel,
    )


def approximates(spec: VariantSpec) -> bool:
    """Whether its results may differ from those of the full model in fp32."""
    return not spec.is_full or spec.precision != "fp32"


def reference_of(spec: VariantSpec) -> VariantSpec:
    """The full model on the same back end in fp32, which it must beat; for a DLA, on the GPU."""
    return VariantSpec("full", "tensorrt" if spec.backend in TENSORRT else spec.backend)


def decide(candidate: Measurement, reference: Measurement) -> str:
    """Why a variant is of no use, with the figures; empty where it is accepted.

    One that approximates must be faster (median of a frame) than the full model on the same back
    end in fp32, or lighter (host and device memory) with the same results; each by more than
    `MARGIN`. One that does not approximate is never refused.
    """
    if not approximates(VariantSpec.parse(candidate.variant)):
        return ""
    time_ns, limit_ns = candidate.total.p50_ns, reference.total.p50_ns
    if time_ns < limit_ns * (1.0 - MARGIN):
        return ""
    memory = candidate.memory_bytes + candidate.device_memory_bytes
    limit = reference.memory_bytes + reference.device_memory_bytes
    figures = (
        f"{reference.variant}: {time_ns / 1e6:.2f} ms against {limit_ns / 1e6:.2f}, "
        f"{memory / 1e6:.1f} MB against {limit / 1e6:.1f}"
    )
    if memory >= limit * (1.0 - MARGIN):
        return f"neither faster nor lighter than {figures}"
    agreement = candidate.agreement
    # As exactly as it is printed.
    if agreement is not None and agreement.value is not None and round(agreement.value, 3) == 1.0:
        return ""
    return f"not faster than {figures}, and its results differ ({agreement or 'not compared'})"


def find_refusal(
    spec: VariantSpec,
    measurement: Measurement | None,
    agreement: Agreement | None,
    least: float = LEAST_AGREEMENT,
) -> str:
    """Why a variant is not to be used: of no use, or it agrees too little; empty if it is.

    `least` is the least agreement with the full model, in [0, 1]; with 0 an unknown one does, too.
    What was neither measured nor compared (None) is not refused for it.
    """
    if measurement is not None and measurement.refused:
        return measurement.refused
    if agreement is None or least <= 0.0 or not approximates(spec):
        return ""
    if agreement.value is None:
        return (
            f"its agreement with {agreement.reference} is {agreement}; fix: frames that show what "
            "the network finds (--frames, build_frames)"
        )
    # As exactly as it is printed: 0.900 is not below 0.9.
    if round(agreement.value, 3) >= least:
        return ""
    if not spec.is_full:
        hint = "keep more of the network, --recover-steps 2000, 100 or more frames of your camera"
    elif spec.is_quantized:
        hint = "a larger --agreement, 100 or more frames of your camera"
    else:
        hint = "fp32"
    return (
        f"it agrees {agreement} with {agreement.reference}, at least {least:g} is asked for "
        f"(least_agreement); try: {hint}"
    )
