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
    """The text of the file."""
    from jetson_dnn_rt.nodes.cameras.camera import CameraParameters, CameraProcessParameters
    from jetson_dnn_rt.nodes.coordinator.coordinator_parameters import (
        CoordinatorParameters,
        CoordinatorProcessParameters,
    )
    from jetson_dnn_rt.nodes.perception import PerceptionParameters
    from jetson_dnn_rt.nodes.process.parameters import CommonParameters
    from jetson_dnn_rt.nodes.tasks.host import HostParameters
    from jetson_dnn_rt.nodes.tasks.task_parameters import TaskNodeParameters

    process = {field.name for field in _describe(HostParameters)}
    own = [field for field in _describe(PerceptionParameters) if field.name not in process]
    sections = [
        ("Every node", _describe(CommonParameters)),
        ("`perception`", own),
        ("The process: `perception`, or a task that runs alone", _describe(HostParameters)),
        ("Tasks: `detector`, `segmenter`, and any other", _describe(TaskNodeParameters)),
        ("`coordinator`", _describe(CoordinatorParameters)),
        (
            "A `coordinator` in a process of its own, besides",
            _describe(CoordinatorProcessParameters),
        ),
        ("`camera`", _describe(CameraParameters)),
        ("A `camera` in a process of its own, besides", _describe(CameraProcessParameters)),
    ]
    return HEAD + "".join(_render_section(title, items) for title, items in sections)


def _describe(declaration: type[Any]) -> list[Any]:
    from jetson_dnn_rt.nodes.process.parameters import describe

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
        return ", ".join(item.choices)
    limits = "" if item.limits is None else f"{item.limits[0]:g} to {item.limits[1]:g}"
    return ", or ".join(filter(None, (limits, *item.words)))


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8")
    sys.stderr.write(f"{FILE} written\n")
