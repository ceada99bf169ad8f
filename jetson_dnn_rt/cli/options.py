"""The options of ``run`` that name tasks and parameters, and what they mean for the nodes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable

import yaml

from jetson_dnn_rt.config.process import MAX_TRACE_LIMIT_MB, TRACE_LIMIT_MB
from jetson_dnn_rt.safety import yaml_files as safe_yaml

Overrides = dict[str, dict[str, object]]
"""Parameters by the name of the node or task that they belong to."""


NONE = "none"


def add_trust(parser: argparse.ArgumentParser) -> None:
    """The option of commands that read a model which may be code."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="read an exported:PATH, which is code, although other users may change it",
    )


def parse_assignment(text: str) -> tuple[str, str]:
    """Split ``NAME=VALUE``.

    Raises
    ------
    argparse.ArgumentTypeError
        When one of the three is missing.
    """
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} must have the form NAME=VALUE")
    return name, value


def parse_deadline(text: str) -> tuple[str, float]:
    """Split ``TASK=MS``.

    Raises
    ------
    argparse.ArgumentTypeError
        When it has another form, or MS is not a number above 0.
    """
    task, value = parse_assignment(text)
    return task, parse_positive(value)


def parse_setting(text: str) -> tuple[str, str, object]:
    """Split ``TASK.PARAMETER=VALUE``; the value is read as YAML, as in a file of parameters.

    Raises
    ------
    argparse.ArgumentTypeError
        When it has another form, or the value is not YAML.
    """
    name, value = parse_assignment(text)
    task, dot, parameter = name.partition(".")
    if not (task and dot and parameter):
        raise argparse.ArgumentTypeError(f"{text!r} must have the form TASK.PARAMETER=VALUE")
    try:
        return task, parameter, safe_yaml.parse(value)
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(f"{value!r} is not a YAML value") from error


def parse_positive(text: str) -> float:
    """Read a finite number above 0; argparse.ArgumentTypeError for anything else."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number > 0.0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0")
    return number


def parse_count(text: str) -> int:
    """Read a whole number above 0; argparse.ArgumentTypeError for anything else."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number above 0")
    return int(text)


def parse_limit(text: str) -> int:
    """Read a whole number of megabytes; argparse.ArgumentTypeError for anything else."""
    if not (text.isdecimal() and int(text) <= MAX_TRACE_LIMIT_MB):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be a whole number, 0 to {MAX_TRACE_LIMIT_MB}"
        )
    return int(text)


def add_trace_limit(parser: argparse.ArgumentParser, then: str) -> None:
    """Add ``--trace-limit-mb``; `then` says what becomes of jobs beyond it."""
    parser.add_argument(
        "--trace-limit-mb",
        type=parse_limit,
        default=TRACE_LIMIT_MB,
        metavar="MB",
        help=f"disk space of the job trace; {then}; 0 = no limit (default {TRACE_LIMIT_MB})",
    )


def collect_overrides(
    *,
    tasks: Iterable[str] = (),
    source: str | None = None,
    rate_hz: float | None = None,
    loop: bool | None = None,
    detector: str | None = None,
    segmenter: str | None = None,
    variants: Iterable[tuple[str, str]] = (),
    deadlines: Iterable[tuple[str, float]] = (),
    settings: Iterable[tuple[str, str, object]] = (),
) -> Overrides:
    """Parameters of the options; a ``--set`` wins over the option that means the same.

    `tasks` are those of the parameter file: with ``none`` for the segmenter it is taken out.
    """
    overrides: Overrides = {}

    def put(name: str, parameter: str, value: object) -> None:
        if value is not None:
            overrides.setdefault(name, {})[parameter] = value

    put("camera", "source", source)
    put("camera", "rate", rate_hz)
    put("camera", "loop", loop)
    put("detector", "model", detector)
    if segmenter == NONE:
        put("perception", "tasks", [task for task in tasks if task != "segmenter"])
    else:
        put("segmenter", "model", segmenter)
    for task, variant in variants:
        put(task, "variants", [variant])
        put(task, "variant", variant)
    for task, deadline_ms in deadlines:
        put(task, "deadline_ms", deadline_ms)
    for task, parameter, value in settings:
        overrides.setdefault(task, {})[parameter] = value
    return overrides
