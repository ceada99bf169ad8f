# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Write docs/parameters.md from the nodes' own declarations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "docs" / "parameters.md"

HEAD = """\
# Parameters

Made from the nodes' declarations by `python tools/document_parameters.py`; a test compares. The
parameter file with a comment for each is
[config/perception.param.yaml](../config/perception.param.yaml).

*dynamic* parameters take effect from the next frame on; the others are read when the node is
configured, and keep the value that the node was started with where `lock_configuration` is set.
`qos_overrides.<topic>.*` are allowed on images and results.
"""


def render() -> str:
    """Make the text of the file."""
    from jetson_dnn_rt.config.nodes import (
        CameraConfig,
        CameraProcessConfig,
        CoordinatorConfig,
        CoordinatorProcessConfig,
        PerceptionNodeConfig,
    )
    from jetson_dnn_rt.config.process import CommonConfig, ProcessConfig
    from jetson_dnn_rt.config.task import TaskConfig

    process = {field.name for field in _describe(ProcessConfig)}
    own = [field for field in _describe(PerceptionNodeConfig) if field.name not in process]
    sections = [
        ("Every node", _describe(CommonConfig)),
        ("`perception`", own),
        ("The process: `perception`, or a task that runs alone", _describe(ProcessConfig)),
        ("Tasks: `detector`, `segmenter`, and any other", _describe(TaskConfig)),
        ("`coordinator`", _describe(CoordinatorConfig)),
        ("A `coordinator` in a process of its own, besides", _describe(CoordinatorProcessConfig)),
        ("`camera`", _describe(CameraConfig)),
        ("A `camera` in a process of its own, besides", _describe(CameraProcessConfig)),
    ]
    return HEAD + "".join(_render_section(title, items) for title, items in sections)


def _describe(declaration: type[Any]) -> list[Any]:
    from jetson_dnn_rt.config.declaration import describe

    return list(describe(declaration))


def _render_section(title: str, items: list[Any]) -> str:
    lines = [f"\n## {title}\n", "| parameter | default | range | what |", "|---|---|---|---|"]
    for item in items:
        what = item.description.replace("|", "\\|")
        if item.dynamic:
            what += " *dynamic*"
        lines.append(f"| `{item.name}` | {_default(item)} | {_range(item)} | {what} |")
    return "\n".join(lines) + "\n"


def _default(item: Any) -> str:
    value = item.to_ros(item.default)
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{value}`" if value != "" else '`""`'


def _range(item: Any) -> str:
    if item.choices:
        return str(item.listed_choices)
    limits = "" if item.limits is None else f"{item.limits[0]:g} to {item.limits[1]:g}"
    return ", or ".join(filter(None, (limits, *item.words)))


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8")
    sys.stderr.write(f"{FILE} written\n")
