"""Renders a synthetic drive, in a process of its own.

Painting a frame takes 7 ms of Python at 640x480. In the process of the tasks it would hold the
interpreter's lock just when the previous frame is worked on (measured: 1.2 ms more from release
to start); a real camera does not do that either. Frames go to standard output, raw, back to back.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from jetson_dnn_rt.demo.scenes import SceneGenerator


def main(arguments: list[str]) -> int:
    """Write frames until nobody reads: WIDTH HEIGHT STEP_NS SEED."""
    os.nice(10)
    width, height, step_ns, seed = map(int, arguments)
    drive = SceneGenerator(seed, (height, width))
    frame = np.zeros((height, width, 3), np.uint8)
    t_ns = 0
    try:
        while True:
            drive.render(t_ns, frame)
            left = frame.reshape(-1).data
            while left:
                left = left[os.write(sys.stdout.fileno(), left) :]
            t_ns += step_ns
    except BrokenPipeError:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
