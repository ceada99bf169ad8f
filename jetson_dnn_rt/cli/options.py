# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Options that commands share, and parsers of their values."""

from __future__ import annotations

import argparse
import math

import yaml

from jetson_dnn_rt.config.process import MAX_TRACE_LIMIT_MB, TRACE_LIMIT_MB
from jetson_dnn_rt.safety import yaml_files as safe_yaml

NONE = "none"

# The parsers of values below raise argparse.ArgumentTypeError, which leads to exit code 2.


def parse_assignment(text: str) -> tuple[str, str]:
    """Split ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} must have the form NAME=VALUE")
    return name, value


def parse_deadline(text: str) -> tuple[str, float]:
    """Split ``TASK=MS``, where MS is a number above 0."""
    task, value = parse_assignment(text)
    return task, parse_positive(value)


def parse_setting(text: str) -> tuple[str, str, object]:
    """Split ``TASK.PARAMETER=VALUE``; the value is read as YAML, as in a parameter file."""
    name, value = parse_assignment(text)
    task, dot, parameter = name.partition(".")
    if not (task and dot and parameter):
        raise argparse.ArgumentTypeError(f"{text!r} must have the form TASK.PARAMETER=VALUE")
    try:
        return task, parameter, safe_yaml.parse(value)
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(f"{value!r} is not a YAML value") from error


def parse_positive(text: str) -> float:
    """Read a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number > 0.0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0")
    return number


def parse_share(text: str) -> float:
    """Read a number in [0, 1]."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 <= number <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number in [0, 1]")
    return number


def parse_count(text: str) -> int:
    """Read a whole number above 0."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number above 0")
    return int(text)


def parse_whole(text: str) -> int:
    """Read a whole number, which may be 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number")
    return int(text)


def parse_limit(text: str) -> int:
    """Read a whole number of megabytes."""
    if not (text.isdecimal() and int(text) <= MAX_TRACE_LIMIT_MB):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be a whole number, 0 to {MAX_TRACE_LIMIT_MB}"
        )
    return int(text)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add ``--trust``, for commands that read a model which may be code."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="read an exported:PATH, which is code, although other users may change it",
    )


def add_trace_limit(parser: argparse.ArgumentParser, then: str) -> None:
    """Add ``--trace-limit-mb``; `then` says what happens to jobs beyond it."""
    parser.add_argument(
        "--trace-limit-mb",
        type=parse_limit,
        default=TRACE_LIMIT_MB,
        metavar="MB",
        help=f"disk space of the job trace; {then}; 0 = no limit (default {TRACE_LIMIT_MB})",
    )
