"""What a trace was measured on and with: filled in by whoever begins one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.clocks import format_clocks
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.platforms.platform import Platform
from jetson_dnn_rt.traces.schema import TracedTask, TraceMetadata


class AppliedSetting(Protocol):
    """What became of an item of the real-time set-up (`executor.realtime.Setting`)."""

    @property
    def name(self) -> str:
        """Of the item."""

    @property
    def applied(self) -> bool:
        """Whether the system granted it."""

    @property
    def detail(self) -> str:
        """Its value, or why not and what to do."""


def describe_run(
    source: str,
    tasks: Mapping[str, TracedTask],
    *,
    platform: Platform | None = None,
    settings: Iterable[AppliedSetting] = (),
    parameters: Mapping[str, Any] | None = None,
) -> TraceMetadata:
    """Metadata of a run that is about to begin: the machine, and its clocks as they are now.

    Takes some milliseconds; call it before the first frame, from the thread that owns `platform`.

    Parameters
    ----------
    source : str
        ``run``, ``evaluate``, ``profile``, ``nodes`` or ``simulate``.
    tasks : mapping of str to TracedTask
        By the names that job records have.
    platform : Platform, optional
        That is open already; without it one is opened for reading, and closed.
    settings : iterable of AppliedSetting
        `Executor.realtime.settings`.
    parameters : mapping, optional
        Whatever configured the run, by node or command; values as JSON has them.
    """
    if platform is None:
        with detect() as found:
            described = describe_platform(found)
    else:
        described = describe_platform(platform)
    return TraceMetadata(
        machine=describe_machine(),
        platform=described,
        realtime={s.name: {"applied": s.applied, "detail": s.detail} for s in settings},
        tasks=dict(tasks),
        parameters=dict(parameters or {}),
        source=source,
    )


def describe_platform(platform: Platform) -> dict[str, Any]:
    """What a platform is, with its clocks and its power mode as read back now.

    Returns
    -------
    dict
        ``name``, ``title``, ``clocks`` (as the hardware runs, in words; why not where they cannot
        be read), ``configuration`` (`find_configuration`), ``power_mode`` (empty where there are
        none), ``writable``, ``reason`` and ``notes``.
    """
    try:
        clocks = format_clocks(platform.space.names, platform.read())
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
    """The clock configuration nearest to the clocks as they are now; empty where they are hidden.

    Of the words that traces have for clocks: a governor's momentary frequencies would make a
    campaign of every run.
    """
    try:
        return platform.space.describe(platform.space.nearest(platform.read()))
    except PlatformError:
        return ""
