# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A folder of photos in place of a bag: a message for each image file, at an even rate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags.folder import METADATA, is_bag_file
from jetson_dnn_rt.cameras.bags.storage import BagFile
from jetson_dnn_rt.cameras.files import DEFAULT_RATE_HZ, list_images, read_image
from jetson_dnn_rt.cameras.source import ENCODING
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.frames import Frame

KIND = "image file"
TOPIC = "/image_raw"
PERIOD_NS = round(1e9 / DEFAULT_RATE_HZ)


class PhotoFolder(BagFile):
    """The image files of a folder by their names; a message is the path of one.

    SourceError when there is none.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._files = list_images(path)
        self.kinds = {TOPIC: KIND}

    def index(self, topic: str) -> npt.NDArray[np.int64]:
        """Times of the files, as if a camera had delivered them."""
        return np.arange(len(self._files), dtype=np.int64) * PERIOD_NS

    def fetch(self, topic: str, place: int) -> bytes:
        """Path of a file: the decoder opens it, and reads nothing of what is no image."""
        return os.fsencode(self._files[place])

    def deserialize(self, data: bytes | memoryview, kind: str, topic: str) -> Any:
        """Path of the file."""
        return Path(os.fsdecode(bytes(data)))

    def close(self) -> None:
        """Nothing is open."""


def decode_photo(path: Path, sequence: int) -> Frame:
    """Decode a file as the camera ``images:DIR`` does; SourceError when it is no image."""
    stamp_ns = sequence * PERIOD_NS
    return Frame(read_image(path), ENCODING, stamp_ns, sequence, file=path.name)


def holds_photos(path: Path) -> bool:
    """Whether a path is a folder with images, and no bag."""
    try:
        names = os.listdir(path)
        if METADATA in names or any(map(is_bag_file, names)):
            return False
        return bool(list_images(path))
    except (OSError, SourceError):
        return False
