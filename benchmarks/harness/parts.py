# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A run in parts: rounds are added to those of an earlier result, and all are kept and judged.

A benchmark that may be resumed has ``--resume``, keeps its rounds in ``played``, and makes
everything else of its result, the verdict too, of its settings and these rounds. Parts must be of
one code, one machine and one setting: rounds of different things have no interval in common.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.options import Options
from benchmarks.harness.origin import KEY, find_changed
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.platforms.machine import describe_machine

PLAYED = "played"
_OF_MACHINE = ("cpu", "cores", "gpu")
_WHY = "rounds of both cannot be judged as one run"
_OF_PART = ("date", "load_average_1min", "other_cores")


def add_resume(add: Options) -> None:
    """Add ``--resume``."""
    add(
        "--resume", None,
        "earlier result, whose rounds are kept: of the same code, machine and options but for "
        "what is measured", kind=Path, metavar="FILE",
    )  # fmt: skip


def read_result(path: Path | None) -> dict[str, Any] | None:
    """Read the result that a run goes on from; `ConfigurationError` where it is none."""
    if path is None:
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--resume {path}: cannot be read: {error}") from error
    if PLAYED not in found or KEY not in found:
        raise ConfigurationError(f"--resume {path}: it is no result that keeps rounds")
    return found


def take_earlier(
    earlier: Mapping[str, Any] | None, name: str, settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Take the rounds that a run goes on from; none without an earlier result.

    `settings` are entries of the result that must be the same. `ConfigurationError` where the
    rounds are not to be mixed with new ones.
    """
    if earlier is None:
        return []
    machine = describe_machine()
    pairs = {
        "benchmark": (earlier["benchmark"], name),
        **{key: (earlier.get(key), value) for key, value in _to_json(settings).items()},
        **{key: (earlier["machine"][key], machine[key]) for key in _OF_MACHINE},
    }
    for key, (before, now) in pairs.items():
        if before != now:
            raise ConfigurationError(f"--resume: {key} was {before}, and is {now} now; {_WHY}")
    if changed := find_changed(earlier):
        raise ConfigurationError(f"--resume: changed since: {', '.join(changed)}; {_WHY}")
    return list(earlier[PLAYED])


def describe_parts(
    earlier: Mapping[str, Any] | None, result: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Describe the runs of which a result is made, in order."""
    if earlier is None:
        return [_describe(result)]
    return [*(earlier.get("parts") or [_describe(earlier)]), _describe(result)]


def _describe(result: Mapping[str, Any]) -> dict[str, Any]:
    machine = result["machine"]
    return {
        "command": result["command"],
        "commit": result[KEY]["commit"],
        **{key: machine.get(key) for key in _OF_PART},
    }


def _to_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Make of values what a file has of them."""
    found: dict[str, Any] = json.loads(json.dumps(values))
    return found
