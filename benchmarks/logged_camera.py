"""The package's camera node in a process of its own, with a list of the frames that it sent.

Arguments: source, rate in Hz, file. The file gets a line for each frame, its stamp in nanoseconds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.protocol import announce_ready
from jetson_dnn_rt.nodes.cameras.camera import CameraNode
from jetson_dnn_rt.nodes.process.lifecycle import overrides_to_parameters
from jetson_dnn_rt.nodes.process.running import run_node

if TYPE_CHECKING:
    from jetson_dnn_rt.frames import Frame


class StampLog:
    """Listens to the camera beside its topics.

    Parameters
    ----------
    path : Path
        Written line by line: the process does not end by returning.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1, encoding="ascii")
        self._begun = False

    def accept(self, frame: Frame, capture_ns: int) -> bool:
        """Note a frame, and want no job for it; the first says that the camera runs."""
        self._file.write(f"{frame.stamp_ns}\n")
        if not self._begun:
            self._begun = True
            announce_ready()
        return False

    def on_bad_frame(self, frame: Frame, capture_ns: int, reason: str) -> None:
        """Never called: a camera makes no bad frames."""


def main(arguments: list[str]) -> int:
    """Run the camera until SIGTERM."""
    source, rate_hz, path = arguments
    values: dict[str, Any] = {"source": source, "rate": float(rate_hz), "autostart": True}

    def make(context: Any, args: list[str]) -> CameraNode:
        overrides = overrides_to_parameters(values)
        node = CameraNode("bench_camera", context=context, parameter_overrides=overrides)
        node.fanout.add("log", StampLog(Path(path)))
        return node

    return run_node(make, [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
