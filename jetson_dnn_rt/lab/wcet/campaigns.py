"""What the commands that read times out of traces have in common."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.cli.options import parse_positive
from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from jetson_dnn_rt.lab.wcet.samples import Sample
    from jetson_dnn_rt.traces.reader import Trace


def add_sample_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that say which times are taken."""
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
    """Split at commas.

    Raises
    ------
    argparse.ArgumentTypeError
        When a name is empty.
    """
    names = tuple(text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} must be names with commas between them")
    return names


def parse_confidence(text: str) -> float:
    """A share in [0.5, 1).

    Raises
    ------
    argparse.ArgumentTypeError
        When it is none.
    """
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


def count_cut_off(traces: Iterable[Trace], sample: Sample, times: str) -> int:
    """Jobs that are missing in a sample because they were, or would have been, too slow.

    Execution times lack those that were aborted, responses those that were skipped, too. Stages
    lack none: what an aborted job ran of them was measured to their ends.
    """
    from jetson_dnn_rt.lab.wcet.samples import campaign_names

    key = dict(sample.key)
    if "stage" in key:
        return 0
    lost = ("aborted",) if times == "execution" else ("aborted", "skipped")
    names = [name for name in ("task", "variant") if name in key]
    count = 0
    for trace in traces:
        for batch in trace.batches([*names, "outcome", "warm_up", "batch"]):
            columns = [campaign_names(batch, name).to_pylist() for name in names]
            outcomes, warm_up = (batch.column(n).to_pylist() for n in ("outcome", "warm_up"))
            for outcome, warm, *found in zip(outcomes, warm_up, *columns, strict=True):
                count += outcome in lost and not warm and found == [key[name] for name in names]
    return count


def describe_platform(traces: Iterable[Trace]) -> str:
    """The machine of traces in a few words; several are joined by ``and``."""
    words = []
    for trace in traces:
        metadata = trace.metadata
        parts = (
            *(metadata.machine.get(name) for name in ("cpu", "gpu")),
            *(metadata.platform.get(name) for name in ("power_mode", "configuration")),
        )
        words.append(", ".join(str(part) for part in parts if part))
    return " and ".join(dict.fromkeys(filter(None, words)))
