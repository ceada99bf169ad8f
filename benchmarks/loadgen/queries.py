# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Queries that wait for the results of their image."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any


class Queries:
    """Queries by the stamp of their image, until each topic has answered; for several threads.

    `complete` is called once for every query, with the number that LoadGen gave it.
    """

    def __init__(self, topics: Sequence[str], complete: Callable[[int], object]) -> None:
        self._topics, self._complete = tuple(topics), complete
        self._answered = threading.Condition()
        self._open: dict[int, int] = {}
        self._rows: dict[int, dict[str, int | None]] = {}

    def issue(self, stamp_ns: int, number: int) -> None:
        """Note a query, before its image is published."""
        with self._answered:
            self._open[stamp_ns] = number
            self._rows[stamp_ns] = dict.fromkeys(self._topics)

    def answer(self, topic: str, stamp_ns: int, now_ns: int) -> None:
        """Note an answer, and complete the query with the last one.

        Results of other images, and those that come after the query was given up, do not count.
        """
        with self._answered:
            if stamp_ns not in self._open:
                return
            row = self._rows[stamp_ns]
            row[topic] = now_ns
            if None in row.values():
                return
            number = self._open.pop(stamp_ns)
            self._answered.notify_all()
        self._complete(number)

    def give_up(self, seconds: float) -> None:
        """Wait for the last answers, and complete queries that got none."""
        with self._answered:
            self._answered.wait_for(lambda: not self._open, seconds)
            left = list(self._open.values())
            self._open.clear()
        for number in left:
            self._complete(number)

    def rows(self) -> list[dict[str, Any]]:
        """All queries, with the time of the answer on each topic, None where there was none."""
        with self._answered:
            return [
                {"stamp_ns": stamp_ns, "answered_ns": dict(row)}
                for stamp_ns, row in self._rows.items()
            ]
