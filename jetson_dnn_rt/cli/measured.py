"""Measured figures of variants, for tables and JSON: times in ms, memory in MB (1e6 bytes)."""

from __future__ import annotations

from typing import Any

from jetson_dnn_rt.cli.text import Cell
from jetson_dnn_rt.variants.measuring.measurement import Measurement, TimeDistribution

COLUMNS = ("p50 ms", "p99 ms", "memory MB", "agreement", "MACs M", "parameters k")


def format_figures(measurement: Measurement | None) -> list[Cell]:
    """Cells for `COLUMNS`; dashes where nothing was measured."""
    if measurement is None:
        return [None] * len(COLUMNS)
    agreement, macs = measurement.agreement, measurement.macs
    parameters = measurement.parameters
    return [
        f"{measurement.total.p50_ns / 1e6:.2f}",
        f"{measurement.total.p99_ns / 1e6:.2f}",
        round((measurement.memory_bytes + measurement.device_memory_bytes) / 1e6, 1),
        None if agreement is None else f"{agreement.value:.3f} {agreement.metric}",
        None if macs is None else round(macs / 1e6, 1),
        None if parameters is None else round(parameters / 1e3, 1),
    ]


def figures_to_dict(measurement: Measurement | None) -> dict[str, Any]:
    """The same for JSON, with the stages and what it was measured on."""
    if measurement is None:
        return {}
    agreement = measurement.agreement
    return {
        "time_ms": _times_to_dict(measurement.total),
        "stages": {stage.name: _times_to_dict(stage) for stage in measurement.stages},
        "memory_mb": measurement.memory_bytes / 1e6,
        "device_memory_mb": measurement.device_memory_bytes / 1e6,
        "agreement": None
        if agreement is None
        else {
            "value": agreement.value,
            "metric": agreement.metric,
            "frames": agreement.frames,
            "evidence": agreement.evidence,
            "reference": agreement.reference,
        },
        "macs": measurement.macs,
        "parameters": measurement.parameters,
        "parameters_mb": None
        if measurement.parameter_bytes is None
        else measurement.parameter_bytes / 1e6,
        "threads": measurement.threads,
        "frames": measurement.frames,
        "frame_size": list(measurement.frame_size),
        "machine": measurement.machine,
        "date": measurement.date,
    }


def _times_to_dict(times: TimeDistribution) -> dict[str, float | int]:
    return {
        "p50": times.p50_ns / 1e6,
        "p90": times.p90_ns / 1e6,
        "p99": times.p99_ns / 1e6,
        "max": times.max_ns / 1e6,
        "mean": times.mean_ns / 1e6,
        "count": times.count,
    }
