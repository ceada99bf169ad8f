# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The newest statuses on ``/diagnostics``, by name."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Mapping
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray

TIMEOUT_S = 180.0

Values = Mapping[str, str]


class Statuses:
    """What the nodes of this machine say last; `node` is spun by somebody."""

    def __init__(self, node: Any) -> None:
        self._condition = threading.Condition()
        self._values: dict[str, dict[str, str]] = {}
        self._counts: dict[str, int] = {}
        node.create_subscription(DiagnosticArray, "/diagnostics", self._take, 100)

    def _take(self, message: Any) -> None:
        with self._condition:
            for status in message.status:
                if status.hardware_id == platform.node():
                    values = {one.key: one.value for one in status.values}
                    self._values[status.name] = {"": status.message, **values}
                    self._counts[status.name] = self._counts.get(status.name, 0) + 1
            self._condition.notify_all()

    def read(self, name: str) -> dict[str, str]:
        """Values of a status, its message as that of an empty key; empty before the first."""
        with self._condition:
            return dict(self._values.get(name, {}))

    def wait(
        self,
        name: str,
        ready: Callable[[Values], Any] = lambda values: True,
        timeout_s: float = TIMEOUT_S,
    ) -> dict[str, str]:
        """Wait for a status that comes from now on and is ready; TimeoutError shows the last."""
        with self._condition:
            before = self._counts.get(name, 0)

            def is_there() -> bool:
                return self._counts.get(name, 0) > before and bool(ready(self._values[name]))

            if not self._condition.wait_for(is_there, timeout_s):
                raise TimeoutError(f"{name} is not what is waited for: {self._values.get(name)}")
            return dict(self._values[name])


def read_outcomes(values: Values) -> dict[str, int]:
    """Counts of the frames of a task by outcome."""
    start = "outcome."
    return {k.removeprefix(start): int(v) for k, v in values.items() if k.startswith(start)}
