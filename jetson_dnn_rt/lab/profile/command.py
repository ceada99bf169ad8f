# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Measure how long the variants of models take: per layer, stage and model, alone and disturbed.

Runs them on real frames, stage by stage, at the present clocks, at those listed, or at a sample of
at most 50 from which all others are predicted, with the error of the prediction. Clocks are set
only with --clocks, and are restored at the end. An interrupted profile continues where it stopped
when the same command is run again with the same --output folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from jetson_dnn_rt.cli.options import (
    add_trace_limit,
    add_trust,
    parse_count,
    parse_deadline,
    parse_positive,
)

HELP = "measure variants: distributions per layer and stage, tables for the coordinator"
DEFAULT_RUNS = 200
MAX_COHORT = 16
LAYER, STAGE, MODEL = "layer", "stage", "model"
DEFAULT_OPERATOR_RUNS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add(
        "--model", action="append", required=True, metavar="[TASK=]MODEL",
        help="builtin:NAME, onnx:PATH, ...; may be repeated: one table a task",
    )  # fmt: skip
    add_trust(parser)
    add(
        "--variants", default="all", metavar="all|LIST",
        help="names with commas between; all = what the library has of the model, and the full "
        "model (default)",
    )  # fmt: skip
    add(
        "--runs", type=parse_count, default=DEFAULT_RUNS, metavar="N",
        help=f"timed frames of each variant; a quarter at points of a sample (default "
        f"{DEFAULT_RUNS})",
    )  # fmt: skip
    add(
        "--frames", metavar="SOURCE",
        help="video:PATH, bag:PATH[#/topic], images:DIR or synthetic[:SEED] (default synthetic)",
    )  # fmt: skip
    add(
        "--clocks", default="current", metavar="CONFIG,...|current|sample",
        help="CONFIG = number of a configuration, slowest, fastest, or a power mode as MAXN; "
        "sample = at most 50, the rest is predicted (default current)",
    )  # fmt: skip
    add(
        "--per", choices=(LAYER, STAGE, MODEL), default=STAGE,
        help="resolution of the times; layer runs the networks once more, layer by layer "
        "(default stage)",
    )  # fmt: skip
    add(
        "--interference", type=_parse_interference, default=(),
        metavar="none,cpu,memory,gpu,cohort:N",
        help="measure again beside a load on every core; copies of memory; a load on the GPU; "
        "N - 1 other tasks, or copies of the task where it is the only one",
    )  # fmt: skip
    add(
        "--cold", type=_parse_none_or_count, default=0, metavar="K",
        help="first frames of K fresh processes for each variant, measured apart (default 0)",
    )  # fmt: skip
    add(
        "--operators", type=_parse_none_or_count, metavar="N",
        help="frames under the PyTorch profiler, in a pass of its own, for attribution (default "
        f"{DEFAULT_OPERATOR_RUNS} where --output is a folder or --per is layer, else 0)",
    )  # fmt: skip
    add(
        "--stages", type=_parse_none_or_count, default=0, metavar="N",
        help="0 = automatic (default)",
    )  # fmt: skip
    add(
        "--finest-stages", action="store_true",
        help="one run per stage on every back end, as the task's parameter finest_stages",
    )  # fmt: skip
    add(
        "--amp-lists", default="", metavar="FILE",
        help="of variants in fp16 by TVM, as the task's parameter amp_lists",
    )  # fmt: skip
    add("--threads", type=parse_count, default=1, metavar="N", help="threads per run (default 1)")
    add("--rate", type=parse_positive, default=30.0, metavar="HZ", help="frame rate (default 30)")
    add(
        "--deadline", type=parse_deadline, action="append", default=[], metavar="TASK=MS",
        help="relative deadline (default: one period)",
    )  # fmt: skip
    add("--engine-cache", type=Path, metavar="DIR", help="the library")
    add(
        "--weights", default="DEFAULT", metavar="DEFAULT|none|FILE",
        help="of torchvision: models; none = random ones, as good for times (default DEFAULT)",
    )  # fmt: skip
    add(
        "--output", type=Path, metavar="DIR|FILE.json",
        help="a folder for tables, report and traces, which a second start goes on with; or a "
        "file for the tables alone",
    )  # fmt: skip
    add_trace_limit(parser, "beyond it the command fails")
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Profile, write and report."""
    from jetson_dnn_rt.lab.profile.run import profile

    return profile(args, DEFAULT_OPERATOR_RUNS)


def _parse_interference(text: str) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for part in text.split(","):
        kind, colon, count = part.partition(":")
        if kind == "cohort" and count.isdecimal() and 2 <= int(count) <= MAX_COHORT:
            found.append((kind, int(count)))
        elif kind in ("cpu", "memory", "gpu") and not colon:
            found.append((kind, 0))
        elif part != "none":
            raise argparse.ArgumentTypeError(
                f"{part!r} must be none, cpu, memory, gpu or cohort:N with N in [2, {MAX_COHORT}]"
            )
    return tuple(dict.fromkeys(found))


def _parse_none_or_count(text: str) -> int:
    return 0 if text == "0" else parse_count(text)
