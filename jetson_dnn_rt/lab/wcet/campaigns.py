"""Arguments and input that the commands on times in traces share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.cli.options import parse_positive
from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from jetson_dnn_rt.lab.wcet.samples import Sample
    from jetson_dnn_rt.traces.reader import Trace


def add_sample_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose times."""
    add = parser.add_argument
    add(
        "--by",
        type=parse_names,
        default=("task", "variant", "clocks"),
        metavar="KEY,...",
        help="what makes a campaign: task, variant, stage, clocks (default task,variant,clocks)",
    )
    add(
        "--times",
        choices=("execution", "response"),
        default="execution",
        help="of the work alone, or from release to completion (default execution)",
    )
    add(
        "--confidence",
        type=parse_confidence,
        default=0.95,
        metavar="SHARE",
        help="of the bounds (default 0.95)",
    )
    add("--seed", type=int, default=0, help="of the resamples (default 0)")
    add("--json", action="store_true", help="one JSON object as the last line")


def parse_names(text: str) -> tuple[str, ...]:
    """Split at commas; an empty name is an argparse error."""
    names = tuple(text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} must be names with commas between them")
    return names


def parse_confidence(text: str) -> float:
    """Parse a share in [0.5, 1)."""
    value = parse_positive(text)
    if not 0.5 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"{text} must be in [0.5, 1)")
    return value


def read_campaigns(
    paths: Sequence[Path], by: Sequence[str], times: str
) -> tuple[list[Sample], list[Trace]]:
    """Open traces and group their times.

    Raises
    ------
    ConfigurationError
        When one is no trace, a key is unknown, or there is no finished job.
    """
    from jetson_dnn_rt.lab.wcet.samples import read_samples
    from jetson_dnn_rt.traces.reader import open_traces

    try:
        traces = open_traces(paths)
        samples = read_samples(traces, by, times)
    except (ValueError, OSError) as error:
        raise ConfigurationError(str(error)) from error
    kept = [sample for sample in samples if len(sample)]
    if not kept:
        raise ConfigurationError(f"no finished job in {', '.join(map(str, paths))}")
    return kept, traces
