"""A few drawn frames as files: a camera that reads them costs next to nothing.

Drawing is Python, and would compete for the interpreter's lock with what is measured; a device or
a video decoder does not.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from jetson_dnn_rt.cameras.sources import open_source

WIDTH, HEIGHT = 640, 480
COUNT = 16


def write_frames(folder: Path) -> Path:
    """Make the folder and fill it with uncompressed images of a synthetic drive."""
    folder.mkdir()
    source = open_source(f"synthetic:{WIDTH}x{HEIGHT}")
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for index in range(COUNT):
        source.read(image)
        cv2.imwrite(str(folder / f"{index:03d}.bmp"), image)
    source.close()
    return folder
