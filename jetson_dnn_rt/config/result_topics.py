# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Topics on which tasks publish their results, in the namespaces of their nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jetson_dnn_rt.config.task import OUTPUTS, TaskConfig
from jetson_dnn_rt.errors import ConfigurationError

INSTANCE_MASK, KEYPOINTS = "instance_mask", "keypoints"

LONGEST_NAME = 100
"""Characters of a mask's name in a topic; ROS takes some 240 of a full topic name."""

_INVALID = re.compile(r"[^A-Za-z0-9]+")


def list_results(task: TaskConfig) -> tuple[str, ...]:
    """Names of the main topics of a task: one, or of several masks one each, the first one first.

    The masks are those of the parameter `outputs`: others are known when the model is loaded.
    """
    topic = OUTPUTS[task.kind]
    if task.kind == "segmentation" and len(task.outputs) > 1:
        return tuple(f"{name}/{topic}" for name in name_masks(task.outputs))
    return (topic,)


def list_companions(task: TaskConfig) -> tuple[str, ...]:
    """Names of topics beside the main ones that complete a result.

    Masks and keypoints of objects, which only some models give, and the labels of several masks.
    """
    if task.kind == "detection":
        return (INSTANCE_MASK, KEYPOINTS)
    spaces = (topic.rpartition("/")[0] for topic in list_results(task))
    return tuple(f"{space}/label_info" for space in spaces if space)


def name_masks(outputs: Sequence[str]) -> tuple[str, ...]:
    """Make names for topics of the names of masks: what ROS does not allow becomes ``_``.

    ConfigurationError, which names the output, where that gives no name, too long a one, or one
    name for two outputs.
    """
    names: dict[str, str] = {}
    for output in outputs:
        name = _INVALID.sub("_", output).strip("_")
        if name[:1].isdigit():
            name = f"mask_{name}"
        if not name or len(name) > LONGEST_NAME:
            raise ConfigurationError(
                f"output {output[:LONGEST_NAME]!r} gives no name for a topic, which has 1 to "
                f"{LONGEST_NAME} letters, digits and _; fix: give it another name in the file, or "
                "leave it out of outputs"
            )
        if name in names:
            raise ConfigurationError(
                f"outputs {names[name]!r} and {output!r} would both be on topics {name}/...; fix: "
                "give one another name in the file, or leave it out of outputs"
            )
        names[name] = output
    return tuple(names)
