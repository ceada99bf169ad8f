# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Estimate the worst case of every campaign in a trace, with the confidence it deserves.

A campaign is one task, variant and clock configuration. Each gets a verdict: supported (the
sample itself reaches the bound), extrapolated (the bound rests on a tail law that passed its
tests) or unproven (a test failed: which one, and what to do). No number comes without a verdict.

With --validate the bounds are checked against a second campaign, measured apart from the first:
how many of its frames exceed them, and how many they allow. The exit code is 1 if one is refuted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.options import parse_positive
from jetson_dnn_rt.cli.text import format_rows
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.traces.summary import has_quantile

if TYPE_CHECKING:
    from jetson_dnn_rt.lab.wcet.comparison import Validation
    from jetson_dnn_rt.lab.wcet.samples import Sample
    from jetson_dnn_rt.lab.wcet.statement import Campaign
    from jetson_dnn_rt.traces.reader import Trace

HELP = "what the worst case is, with the confidence it deserves"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("traces", nargs="+", type=Path, metavar="TRACE", help="folders or files of job traces")
    text = "probabilities per frame (default 1e-3,1e-4,1e-6)"
    default = (1e-3, 1e-4, 1e-6)
    add("--exceedance", type=parse_exceedances, default=default, metavar="P,...", help=text)
    text = "a second campaign to check the bounds against; may be repeated"
    add("--validate", type=Path, action="append", default=[], metavar="TRACE", help=text)
    add_sample_arguments(parser)


def add_sample_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose times."""
    add = parser.add_argument
    text = "keys of a campaign: task, variant, stage, clocks (default task,variant,clocks)"
    default = ("task", "variant", "clocks")
    add("--by", type=lambda by: by.split(","), default=default, metavar="KEY,...", help=text)
    text = "of the work alone, or from release to completion (default execution)"
    add("--times", choices=("execution", "response"), default="execution", help=text)
    text = "confidence of the bounds (default 0.95)"
    add("--confidence", type=parse_confidence, default=0.95, metavar="SHARE", help=text)
    add("--seed", type=int, default=0, help="seed of the resamples (default 0)")
    add("--json", action="store_true", help="one JSON object as the last line")


def parse_exceedances(text: str) -> tuple[float, ...]:
    """Parse comma-separated probabilities; one outside (0, 0.5] is an argparse error."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} must be numbers with commas") from error
    if not all(0.0 < value <= 0.5 for value in values):
        raise argparse.ArgumentTypeError(f"{text!r} must be probabilities in (0, 0.5]")
    return values


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
        When a path is not a trace, a key is unknown, or there is no finished job.
    """
    from jetson_dnn_rt.lab.wcet.samples import read_samples
    from jetson_dnn_rt.traces.reader import open_trace

    try:
        traces = [open_trace(path) for path in paths]
        samples = read_samples(traces, by, times)
    except (ValueError, OSError) as error:
        raise ConfigurationError(str(error)) from error
    kept = [sample for sample in samples if len(sample)]
    if not kept:
        named = ", ".join(map(str, paths))
        if warm_up := sum(len(sample.warm_up_ns) for sample in samples):
            text = f"no finished job in {named} after the warm-up, which the {warm_up} there"
            raise ConfigurationError(f"{text} belong to; record more frames")
        raise ConfigurationError(f"no finished job in {named}")
    return kept, traces


def execute(args: argparse.Namespace) -> int:
    """Judge every campaign; return 1 if a second campaign refutes a bound."""
    from jetson_dnn_rt.lab.wcet.comparison import validate
    from jetson_dnn_rt.lab.wcet.evt import judge
    from jetson_dnn_rt.lab.wcet.statement import to_json

    samples, traces = read_campaigns(args.traces, args.by, args.times)
    platform = describe_platform(traces)
    second: dict[object, Sample] = {}
    if args.validate:
        others, _ = read_campaigns(args.validate, args.by, args.times)
        second = {sample.key: sample for sample in others}
        if not any(sample.key in second for sample in samples):
            raise ConfigurationError("the traces of --validate have no campaign of the first")
    results: list[dict[str, Any]] = []
    refuted = False
    for place, sample in enumerate(samples):
        print(f"wcet: {place + 1} of {len(samples)}: {sample.title}", file=sys.stderr)
        campaign = judge(
            sample.times_ns,
            title=sample.title,
            exceedances=args.exceedance,
            confidence=args.confidence,
            seed=args.seed,
            platform=platform,
            cut_off=count_cut_off(traces, sample, args.times),
        )
        other = second.get(sample.key)
        found = [] if other is None else validate(campaign, other.times_ns)
        refuted = refuted or any(one.refuted for one in found)
        validated = [{**to_json(one), "refuted": one.refuted} for one in found]
        fields = {**dict(sample.key), **campaign.to_dict(), "warm_up": len(sample.warm_up_ns)}
        results.append({**fields, "validation": validated})
        if not args.json:
            print(format_campaign(campaign, found), end="\n\n")
    if args.json:
        print(json.dumps({"platform": platform, "campaigns": results}))
    return 1 if refuted else 0


def count_cut_off(traces: Iterable[Trace], sample: Sample, times: str) -> int:
    """Count the jobs missing from a sample because they were, or would have been, too slow.

    Execution times lack the aborted jobs, responses also the skipped ones. Stages lack none: those
    that an aborted job ran were measured to their ends.
    """
    from jetson_dnn_rt.lab.wcet.samples import KIND_COLUMNS, campaign_names

    key = dict(sample.key)
    if "stage" in key:
        return 0
    lost = ("aborted",) if times == "execution" else ("aborted", "skipped")
    names = [name for name in ("task", "variant") if name in key]
    count = 0
    for trace in traces:
        for batch in trace.batches([*names, "outcome", "warm_up", *KIND_COLUMNS]):
            columns = [campaign_names(batch, name).to_pylist() for name in names]
            outcomes, warm_up = (batch.column(n).to_pylist() for n in ("outcome", "warm_up"))
            for outcome, warm, *found in zip(outcomes, warm_up, *columns, strict=True):
                count += outcome in lost and not warm and found == [key[name] for name in names]
    return count


def describe_platform(traces: Iterable[Trace]) -> str:
    """Describe the machines of traces in a few words, joined by ``and``."""
    words = []
    for trace in traces:
        machine, platform = trace.metadata.machine, trace.metadata.platform
        parts = [machine.get(name) for name in ("cpu", "gpu")]
        parts += [platform.get(name) for name in ("power_mode", "configuration")]
        words.append(", ".join(str(part) for part in parts if part))
    return " and ".join(dict.fromkeys(filter(None, words)))


def format_campaign(campaign: Campaign, found: list[Validation]) -> str:
    """Format what was seen, bounds, tests and advice as text."""
    shown = has_quantile(campaign.count, 0.99)
    p99 = f"p99 {campaign.p99_ns / 1e6:.3f}, " if shown else ""
    lines = [
        f"{campaign.title}: {campaign.statement}",
        f"  seen: {campaign.count:,} frames, best {campaign.best_ns / 1e6:.3f}, p50"
        f" {campaign.p50_ns / 1e6:.3f}, {p99}high-water mark {campaign.hwm_ns / 1e6:.3f} ms",
        f"  without a model: above the high-water mark with less than"
        f" {campaign.rule_of_three:.2g} per frame; longest burst above p99"
        f" {campaign.longest_burst}",
        "",
    ]
    header = ("p per frame", "estimate ms", f"{campaign.confidence:.0%} upper ms", "by", "verdict")
    rows = []
    for bound in campaign.bounds:
        given = bound.upper_ns == bound.upper_ns
        figures = (bound.estimate_ns, bound.upper_ns)
        cells = [f"{one / 1e6:.3f}" if given else "-" for one in figures]
        rows.append((f"{bound.exceedance:g}", *cells, bound.method, bound.support.value))
    lines += [f"  {line}" for line in format_rows(header, rows).splitlines()] + [""]
    for test in campaign.tests:
        p_value = "" if test.p_value != test.p_value else f" (p {test.p_value:.2g})"
        mark = "passed" if test.passed else "FAILED"
        lines.append(f"  {mark}  {test.name}: {test.meaning}{p_value}")
    for one in found:
        verdict = "REFUTED" if one.refuted else "holds"
        lines.append(
            f"  {verdict}: {one.counted} frames of the second campaign above"
            f" {one.upper_ns / 1e6:.3f} ms, {one.claimed:.2g} claimed (p {one.p_value:.2g})"
        )
    lines += [f"  next: {advice}" for advice in campaign.advice]
    return "\n".join(lines)
