"""The bags of an evaluation: what is in them, said before anything is loaded."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.evaluate.arrivals import Integers, find_period_ns
from jetson_dnn_rt.lab.evaluate.bags import open_image_bag
from jetson_dnn_rt.lab.evaluate.chunk import name_stream

RESULTS, TRACE = "results.jsonl", "trace"


@dataclass(frozen=True, eq=False)
class Stream:
    """One topic of a bag.

    Attributes
    ----------
    bag, topic : str
        Absolute path, and the topic.
    messages : int
        That are evaluated.
    missing : int
        That the bag says it has, and that cannot be reached.
    log_times_ns : int64 [messages]
        When they were recorded.
    notes : list of str
        What is damaged.
    """

    bag: str
    topic: str
    messages: int
    missing: int
    log_times_ns: Integers
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """As in traces."""
        return name_stream(self.bag, self.topic)

    def to_dict(self) -> dict[str, Any]:
        """For the summary."""
        return {
            "bag": self.bag,
            "topic": self.topic,
            "messages": self.messages,
            "missing": self.missing,
            "notes": self.notes,
        }


def inspect_bags(args: argparse.Namespace) -> list[Stream]:
    """Look into every bag.

    Raises
    ------
    ConfigurationError
        When two of them have one name, or it is not clear which topic is meant.
    SourceError
        When one cannot be read.
    """
    streams = [_inspect(bag.expanduser().absolute(), args.topic, args.frames) for bag in args.bags]
    names = [stream.name for stream in streams]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two of the bags are called {name}: rename one")
    return streams


def find_usual_period_ns(streams: list[Stream]) -> int:
    """Usual time between frames of the first stream that says one; 0 = none does."""
    return next((p for s in streams if (p := find_period_ns(s.log_times_ns))), 0)


def _inspect(path: Path, topic: str, frames: int | None) -> Stream:
    with open_image_bag(path, topic) as bag:
        messages = bag.count if frames is None else min(frames, bag.count)
        times = bag.log_times_ns[:messages].copy()
        return Stream(str(path), bag.topic, messages, bag.missing, times, list(bag.notes))
