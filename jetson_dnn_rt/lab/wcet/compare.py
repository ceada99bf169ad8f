# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Did an update make the tail worse? Two traces of the same work, before and after.

Campaigns (task, variant, clocks) that are in both are compared: Anderson-Darling on all times,
and quantiles with bounds from resampled blocks. The exit code is 1 when a quantile from p90 on
became worse by more than --tolerance, at the confidence: usable in CI on a robot.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.cli.options import parse_positive
from jetson_dnn_rt.cli.text import format_rows
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.wcet.command import add_sample_arguments, read_campaigns

if TYPE_CHECKING:
    from jetson_dnn_rt.lab.wcet.comparison import Comparison

HELP = "did an update make the tail worse?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("before", type=Path, metavar="A", help="trace before")
    add("after", type=Path, metavar="B", help="trace after")
    text = "share by which a tail quantile may grow (default 0.05)"
    add("--tolerance", type=parse_positive, default=0.05, metavar="SHARE", help=text)
    add_sample_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    """Compare the campaigns that are in both traces; return 1 if a tail became worse.

    Raises
    ------
    ConfigurationError
        When a trace cannot be read, or the two have nothing in common that is large enough.
    """
    from jetson_dnn_rt.lab.wcet.comparison import compare

    before, after = (
        {sample.key: sample for sample in read_campaigns([path], args.by, args.times)[0]}
        for path in (args.before, args.after)
    )
    notes = [
        f"only in {path}: {sample.title}"
        for path, samples, others in ((args.before, before, after), (args.after, after, before))
        for key, sample in samples.items()
        if key not in others
    ]
    comparisons: list[Comparison] = []
    options = {name: getattr(args, name) for name in ("confidence", "tolerance", "seed")}
    for key, first in before.items():
        if key not in after:
            continue
        try:
            both = first.times_ns, after[key].times_ns
            comparisons.append(compare(*both, title=first.title, **options))
        except ValueError as error:
            notes.append(f"not compared: {first.title}: {error}")
    if not comparisons:
        raise ConfigurationError("; ".join(notes))
    worse = any(one.worse for one in comparisons)
    if args.json:
        shown = [one.to_dict() for one in comparisons]
        print(json.dumps({"worse": worse, "comparisons": shown, "notes": notes}))
    else:
        print("\n\n".join([*map(format_comparison, comparisons), *notes]))
    return 1 if worse else 0


def format_comparison(comparison: Comparison) -> str:
    """Format one campaign as text."""
    header = ("", "before ms", "after ms", "change", "at least", "at most", "verdict")
    rows = [
        (
            f"p{100.0 * one.quantile:g}",
            f"{one.before_ns / 1e6:.3f}",
            f"{one.after_ns / 1e6:.3f}",
            *(f"{change:+.1%}" for change in (one.change, one.change_lower, one.change_upper)),
            one.verdict.value,
        )
        for one in comparison.differences
    ]
    test = comparison.test
    return "\n".join(
        [
            f"{comparison.title}: {comparison.statement}",
            f"  {comparison.before_count:,} frames before, {comparison.after_count:,} after",
            *(f"  {line}" for line in format_rows(header, rows).splitlines()),
            f"  Anderson-Darling: {test.meaning} (p {test.p_value:.2g})",
        ]
    )
