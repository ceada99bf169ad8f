# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Somebody else's detection node as a further side: a command, and the topic of its results.

The command is the user's, so nothing of the node is imported here, whatever its licence. It must
subscribe to the camera's topic, and publish messages of vision_msgs or yolo_msgs with the header
of their image. It takes the detector's place only. The usual node has the other networks beside
it, in a process of its own, so that the machine has the work that the other sides have; the
figures that can be compared are those of the detector alone.

Its results count from when it handed them to DDS (the source timestamp of the message). That is
just before `publish` returns, from when those of the other sides count: none have transport in
them.
"""

from __future__ import annotations

import importlib
import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness.options import Options
from benchmarks.harness.tables import Report, tabulate
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.results import Detections

PEER = "peer"
"""Name of the side."""
DETECTOR = "detector"
"""Name of the task that the peer does."""
COLUMNS = (
    "side, frames, published, in time=met_ratio:.1%, in time/s=in_time_per_s:.1f, "
    "p50 age ms=age_ms.p50:.1f, p99 age ms=age_ms.p99:.1f, cores=cores:.2f"
)
"""Of the table of the detector alone; the cores are those that the whole side kept busy."""


@dataclass(frozen=True)
class Peer:
    """Node of somebody else: how it is started, and where its results are."""

    command: tuple[str, ...]
    topic: str
    type: str


def add_peer(add: Options) -> None:
    """Add the options of a peer."""
    add("--peer", "", "somebody else's detection node as a further side", metavar="COMMAND")
    add("--peer-topic", "/detections", "of its results, published reliably", metavar="TOPIC")
    add("--peer-type", "vision_msgs/msg/Detection2DArray", "of these messages", metavar="TYPE")


def make_peer(args: Namespace) -> Peer | None:
    """Make the peer of the options; `ConfigurationError` where it cannot be used."""
    if not args.peer:
        return None
    try:
        command = tuple(shlex.split(args.peer))
    except ValueError as error:
        raise ConfigurationError(f"--peer {args.peer!r}: {error}") from error
    find_message_type(args.peer_type)
    return Peer(command, args.peer_topic, args.peer_type)


def show_peer(
    result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], *columns: str | tuple[str, Any]
) -> Report:
    """Make the table of the detector alone, after columns of the cell; nothing without a peer."""
    if (peer := result.get(PEER)) is None:
        return []
    return [
        f"the detector alone; {PEER}, which does nothing else, with the usual node beside it: "
        f"{shlex.join(peer['command'])}, {peer['type']} on {peer['topic']}",
        tabulate(rows, *columns, COLUMNS),
    ]


def find_message_type(name: str) -> Any:
    """Import ``PACKAGE/msg/NAME``; `ConfigurationError` where there is none."""
    package, _, kind = name.partition("/msg/")
    try:
        return getattr(importlib.import_module(f"{package}.msg"), kind)
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"--peer-type {name}: {error}; it needs PACKAGE/msg/NAME of a package that is built "
            "and sourced"
        ) from error


def read_boxes(message: Any, labels: Sequence[str]) -> Detections:
    """Read the boxes of a ``vision_msgs/Detection2DArray`` or a ``yolo_msgs/DetectionArray``.

    Classes go by their names, or by their numbers; others are left out.
    """
    indices = {str(index): index for index in range(len(labels))}
    indices |= {label.lower(): index for index, label in enumerate(labels)}
    boxes, scores, class_ids = [], [], []
    for one in message.detections:
        if hasattr(one, "class_name"):  # yolo_msgs
            width, height = one.bbox.size.x, one.bbox.size.y
            name, score = one.class_name or str(one.class_id), one.score
        elif one.results:
            width, height = one.bbox.size_x, one.bbox.size_y
            best = max((result.hypothesis for result in one.results), key=lambda each: each.score)
            name, score = best.class_id, best.score
        else:
            continue
        if (index := indices.get(name.lower())) is not None:
            x, y = one.bbox.center.position.x, one.bbox.center.position.y
            boxes.append((x - width / 2, y - height / 2, x + width / 2, y + height / 2))
            scores.append(score)
            class_ids.append(index)
    best_first = np.argsort(-np.array(scores, np.float32), kind="stable")
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4)[best_first],
        np.array(scores, np.float32)[best_first],
        np.array(class_ids, np.int64)[best_first],
    )
