# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Name the command of the benchmarks, which are in a checkout, not in the installed package."""

from __future__ import annotations

import argparse

from jetson_dnn_rt.errors import ConfigurationError

HELP = "say how to run the benchmarks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Accept the arguments of the benchmarks' own command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the benchmark")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="its options")


def execute(args: argparse.Namespace) -> int:
    """Print the command to use; exit code 2."""
    words = " ".join([args.name or "NAME", *args.options])
    raise ConfigurationError(
        f"benchmarks are not installed; in a checkout of the project: python -m benchmarks {words}"
    )
