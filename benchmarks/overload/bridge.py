# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Run this package's side as another commit has it; started as a file, on that commit's folder.

    python bridge.py FOLDER SPECIFICATION

Nothing of this checkout is imported, so this file needs only what all commits have:
`ConsumerSpec`, `TaskConfig` and the role ``ours`` of `nodes`. The specification is JSON with the
values that differ from the defaults, for a pickle would need the classes of the commit that made
it.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any


def make(kind: Any, values: dict[str, Any], paths: tuple[str, ...] = ()) -> Any:
    """Make a dataclass of JSON; an exit with a reason where it lacks a field."""
    if unknown := set(values) - {one.name for one in fields(kind)}:
        raise SystemExit(f"this commit's {kind.__name__} has no {', '.join(sorted(unknown))}")
    return kind(
        **{
            name: Path(value) if name in paths else tuple(value) if type(value) is list else value
            for name, value in values.items()
        }
    )


def use(folder: str) -> None:
    """Let this process, and those that it starts, import the package from a folder."""
    own = str(Path(__file__).resolve().parents[2])
    rest = [path for path in sys.path if path[:1] == "/" and not path.startswith(own + "/bench")]
    sys.path[:] = [folder, *(path for path in rest if path != own)]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *(p for p in given if p and p != own)])
    import jetson_dnn_rt

    found = Path(jetson_dnn_rt.__file__).resolve().parents[1]
    if found != Path(folder).resolve():
        raise SystemExit(f"jetson_dnn_rt comes from {found}, not from {folder}")


def main(folder: str, path: str) -> int:
    """Run the side until SIGTERM."""
    use(folder)
    from benchmarks.overload import bench, nodes
    from jetson_dnn_rt.config.task import TaskConfig

    given = json.loads(Path(path).read_text(encoding="utf-8"))
    tasks = [make(TaskConfig, values) for values in given.pop("tasks")]
    spec = make(bench.ConsumerSpec, {**given, "tasks": tasks}, paths=("output",))
    own = Path(path).with_suffix(".pickle")
    own.write_bytes(pickle.dumps(spec))
    return int(nodes.ROLES["ours"](str(own)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
