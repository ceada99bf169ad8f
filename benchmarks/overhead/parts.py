# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Times of a frame on its way through camera, DDS, rclpy and the executor, in one clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from benchmarks.overload.bench import published_ns
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work
from jetson_dnn_rt.traces.summary import summarize_ms

OWNERS = {
    "camera": "ours",
    "serialise": "rclpy",
    "transport": "Fast DDS",
    "wake-up and take": "rclpy",
    "topic": "rclpy, Fast DDS",
    "executor": "ours",
    "delivery": "ours",
    "publish": "rclpy, Fast DDS",
}
"""Parts of the time, in order, and whose they are for the most part."""


class Received(NamedTuple):
    """An image in a bare subscription; times in the system clock."""

    stamp_ns: int
    source_ns: int  # DDS had it, serialised
    received_ns: int  # it was complete in the reader's history
    callback_ns: int  # its callback began

    def split(self, sent_ns: int) -> dict[str, int]:
        """Split the time from capture to callback; `sent_ns` is when it left the camera."""
        times = (self.stamp_ns, sent_ns, *self[1:])
        return {n: end - begin for n, (begin, end) in zip(OWNERS, pairwise(times), strict=False)}


class Ended(NamedTuple):
    """A job whose result was published; times in the system clock, as stamps are."""

    stamp_ns: int
    release_ns: int
    completion_ns: int
    publish_ns: int  # the first call of `publish` begins
    published_ns: int  # the last one has returned
    busy_ns: int  # execution, and waiting for the other task

    @property
    def overhead_ns(self) -> int:
        """Time from capture to publication that is neither execution nor waiting."""
        return self.published_ns - self.stamp_ns - self.busy_ns

    @property
    def response_overhead_ns(self) -> int:
        """The same from release to completion."""
        return self.completion_ns - self.release_ns - self.busy_ns

    def split(self, sent_ns: int | None = None) -> dict[str, int]:
        """Split the overhead into its parts, which add up to it.

        `sent_ns` is when the image left the camera's process; None where there is no other.
        """
        begin = {"camera": self.release_ns - self.stamp_ns}
        if sent_ns is not None:
            begin = {"camera": sent_ns - self.stamp_ns, "topic": self.release_ns - sent_ns}
        return {
            **begin,
            "executor": self.response_overhead_ns,
            "delivery": self.publish_ns - self.completion_ns,
            "publish": self.published_ns - self.publish_ns,
        }


class Watch:
    """Notes when results are published and jobs end, in this process."""

    def __init__(self) -> None:
        self.jobs: list[Ended] = []
        self.arrived: set[int] = set()  # stamps of all frames that came, whatever became of them
        self._publishing = threading.local()

    @contextmanager
    def on_publishers(self) -> Iterator[None]:
        """Note when calls of `publish` begin meanwhile, on whatever publisher."""
        from rclpy.publisher import Publisher

        publish = Publisher.publish

        def note(publisher: Any, message: Any) -> None:
            self._begins.append(time.time_ns())
            publish(publisher, message)

        Publisher.publish = note
        try:
            yield
        finally:
            Publisher.publish = publish

    def observe(self, record: JobRecord, work: Work) -> None:
        """Note a job that ended; called on the thread that published its result."""
        begins, stamp_ns = self._begins, work.frame.stamp_ns
        self.arrived.add(stamp_ns)
        if record.outcome is Outcome.MET:
            # Stamps are in the system clock: no steady clock is shared through a header.
            to_system_ns = time.time_ns() - time.monotonic_ns()
            end_ns = published_ns(work) + to_system_ns
            self.jobs.append(
                Ended(
                    stamp_ns,
                    record.release_ns + to_system_ns,
                    record.completion_ns + to_system_ns,
                    min([*begins[:1], end_ns]),
                    end_ns,
                    record.execution_time_ns + record.waiting_ns,
                )
            )
        begins.clear()

    @property
    def _begins(self) -> list[int]:
        """When calls of `publish` began on this thread since its last job ended."""
        if not hasattr(self._publishing, "begins"):
            self._publishing.begins = []
        begins: list[int] = self._publishing.begins
        return begins


def summarize_parts(split: Iterable[Mapping[str, int]]) -> dict[str, dict[str, float | None]]:
    """Summarise each part over all frames."""
    parts_ns: dict[str, list[int]] = {}
    for frame in split:
        for name, part_ns in frame.items():
            parts_ns.setdefault(name, []).append(part_ns)
    return {name: summarize_ms(times) for name, times in parts_ns.items()}
