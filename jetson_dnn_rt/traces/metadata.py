# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Description of the machine and the run, for a new trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.clocks import format_clocks
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.platforms.platform import Platform
from jetson_dnn_rt.traces.schema import TracedTask, TraceMetadata


def describe_run(
    source: str,
    tasks: Mapping[str, TracedTask],
    *,
    platform: Platform | None = None,
    settings: Iterable[Any] = (),
    parameters: Mapping[str, Any] | None = None,
) -> TraceMetadata:
    """Metadata of a run that is about to begin: the machine, and its clocks as they are now.

    Takes some milliseconds; call it before the first frame, from the thread that owns `platform`
    (an open one; without it one is opened for reading, and closed). `settings` are those of
    `runtime.realtime`.
    """
    with detect() if platform is None else nullcontext(platform) as opened:
        described = describe_platform(opened)
    return TraceMetadata(
        machine=describe_machine(),
        platform=described,
        realtime={s.name: {"applied": s.applied, "detail": s.detail} for s in settings},
        tasks=dict(tasks),
        parameters=dict(parameters or {}),
        source=source,
    )


def describe_platform(platform: Platform) -> dict[str, Any]:
    """A platform, with its clocks (or why they cannot be read) and power mode as read back now."""
    try:
        clocks = format_clocks(platform.space.names, platform.read())
        if not platform.space.names:
            clocks = f"{clocks}: {platform.reason}"
    except PlatformError as error:
        clocks = f"not read: {error}"
    return {
        "name": platform.name,
        "title": platform.title,
        "clocks": clocks,
        "configuration": find_configuration(platform),
        "power_mode": platform.active_mode,
        "writable": platform.writable,
        "reason": platform.reason,
        "notes": list(platform.notes),
    }


def find_configuration(platform: Platform) -> str:
    """The clock configuration nearest to the present clocks; empty where they cannot be read.

    Traces store these, because with a governor's momentary frequencies each run would be a
    separate campaign.
    """
    try:
        return platform.space.describe(platform.space.nearest(platform.read()))
    except PlatformError:
        return ""
