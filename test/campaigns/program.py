# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What all campaigns share: options, a clock that ends them, bars, one result file.

A campaign is a program of this folder with ``add_arguments(parser)`` and ``run(args) -> Result``::

    python test/campaigns/NAME.py --minutes 10 --seed 1 --output test/campaigns/results/NAME.json

The last line on stdout is the result as JSON; exit code 1 when a bar was not met.
``tools/document_trust.py`` writes the table of docs/trust.md from the result files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "test" / "support"
RESULTS = Path(__file__).parent / "results"
sys.path[:0] = [os.fspath(path) for path in (ROOT, SUPPORT) if os.fspath(path) not in sys.path]


@dataclass(frozen=True)
class Bar:
    """What a campaign must show: a sentence, the figure reached, and whether it is enough.

    ``met`` is None where this run could not judge it; ``reached`` says why then.
    """

    bar: str
    reached: str
    met: bool | None


@dataclass
class Result:
    """What came out: bars, counts of what was tried and how it ended, and faults one by one."""

    bars: list[Bar] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """Everything lost or broken, each with what repeats it; the first hundred are kept."""
    series: dict[str, list[float]] = field(default_factory=dict)
    """Samples over time for a plot: equally long lists, ``seconds`` among them."""

    def judge(self, bar: str, reached: object, met: bool | None) -> None:
        """Add a bar."""
        self.bars.append(Bar(bar, str(reached), met))

    @property
    def passed(self) -> bool | None:
        """False when a bar was not met, None when none of them could be judged."""
        verdicts = [bar.met for bar in self.bars if bar.met is not None]
        return all(verdicts) if verdicts else None


class Clock:
    """The time that a campaign has."""

    def __init__(self, minutes: float) -> None:
        self._begin_s = time.monotonic()
        self._limit_s = 60.0 * minutes

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._begin_s

    @property
    def share(self) -> float:
        """Of the time that is over: 1.0 at the end."""
        return min(1.0, self.seconds / self._limit_s) if self._limit_s else 1.0

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.seconds >= self._limit_s


def prepare_ros() -> None:
    """Set the ROS domain and the network to this machine, unless a test has; before rclpy."""
    if "PYTEST_CURRENT_TEST" not in os.environ:
        from ros_domains import claim_domain

        os.environ["ROS_DOMAIN_ID"] = str(claim_domain())
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
        profile = ROOT / "config" / "fastdds_profile.xml"
        os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", os.fspath(profile))
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.fspath, (ROOT, SUPPORT)))


def main(
    run: Callable[[argparse.Namespace], Result],
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    *,
    minutes: float = 1.0,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a campaign as a program, for ``minutes`` unless told otherwise.

    ``args`` has ``minutes``, ``seed``, ``rng`` (a `random.Random` of that seed) and ``clock``
    besides the campaign's own options.
    """
    module = sys.modules[run.__module__]
    parser = argparse.ArgumentParser(
        description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=minutes, help=f"default {minutes:g}")
    parser.add_argument("--seed", type=int, default=1, help="of everything drawn (default 1)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON there too")
    add_arguments(parser)
    given = sys.argv[1:] if arguments is None else list(arguments)
    args = parser.parse_args(given)
    args.rng, args.clock = random.Random(args.seed), Clock(args.minutes)
    from jetson_dnn_rt.platforms.machine import describe_machine

    machine = describe_machine()
    del machine["command"]  # of this project's own command line
    result = run(args)
    program = Path(str(module.__file__))
    report = {
        "campaign": program.stem,
        "command": shlex.join(["python", f"test/campaigns/{program.name}", *given]),
        "seed": args.seed,
        "took_minutes": round(args.clock.seconds / 60.0, 2),
        "passed": result.passed,
        "bars": [vars(bar) for bar in result.bars],
        "counts": result.counts,
        "faults": result.faults[:100],
        "faults_in_all": len(result.faults),
        "series": result.series,
        "machine": machine,
    }
    if args.output is not None:
        write(report, args.output)
    print(json.dumps(report))
    return 1 if result.passed is False else 0


def write(report: Mapping[str, Any], path: Path) -> None:
    """Write a result file."""
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
