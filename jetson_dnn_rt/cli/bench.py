"""Say where the benchmarks are: in a checkout of the project, not in the installed package."""

from __future__ import annotations

import argparse

from jetson_dnn_rt.errors import ConfigurationError

HELP = "say how the benchmarks are run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what the benchmarks' own command takes."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the benchmark")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="its options")


def execute(args: argparse.Namespace) -> int:
    """Name the command; exit code 2."""
    words = " ".join([args.name or "NAME", *args.options])
    raise ConfigurationError(
        f"benchmarks are not installed; in a checkout of the project: python -m benchmarks {words}"
    )
