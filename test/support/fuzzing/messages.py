# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Images as messages: JPEG and PNG files, and serialized ``sensor_msgs/msg/Image``."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import hostile_images as hostile
import numpy as np
from bags import STORE, make_header

from fuzzing.formats import Files, Format
from fuzzing.mutations import spoil_bytes
from jetson_dnn_rt.cameras.bgr import copy_as_bgr
from jetson_dnn_rt.cameras.image_messages import decode_image, view_image
from jetson_dnn_rt.cameras.serialized_images import read_image
from jetson_dnn_rt.models.input.encodings import ENCODINGS

_IMAGE = "sensor_msgs/msg/Image"


class Picture(Format):
    """Data of a ``sensor_msgs/msg/CompressedImage``."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        made = {
            "jpeg": hostile.make_jpeg(),
            "progressive": hostile.make_jpeg(progressive=True),
            "turned": hostile.turn_jpeg(hostile.make_jpeg(), 6),
            "png": hostile.make_png(),
            "flat": hostile.make_flat_png(48, 64),
        }
        return {name: {"picture": data} for name, data in made.items()}

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        made = {
            f"hides {height}x{width}": hostile.disguise_jpeg(height, width)
            for height, width in (hostile.FAR_TOO_LARGE, hostile.TOO_LARGE)
        }
        return {name: {"picture": data} for name, data in made.items()}

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        data = files["picture"]
        if rng.random() < 0.5:
            data = hostile.mutate_file(rng.getrandbits(32))
        if rng.random() < 0.6:
            data = spoil_bytes(data, rng, other["picture"])
        return {"picture": data}

    def read(self, folder: Path, work: Path) -> list[int]:
        data = (folder / "picture").read_bytes()
        header = SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=2), frame_id="front")
        message = SimpleNamespace(header=header, data=data, format="jpeg")
        return list(decode_image(message, 0).image.shape)


class RawImage(Format):
    """A serialized ``sensor_msgs/msg/Image``, as it comes from DDS."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        made = {}
        for name, encoding in ENCODINGS.items():
            rows = encoding.shape(48, 64)[0]
            step = 64 * encoding.pixel_bytes
            made[name] = serialize(
                hostile.make_fields(encoding=name, step=step, data=bytes(rows * step))
            )
        return {name: {"message": data} for name, data in made.items()}

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        data = files["message"]
        if rng.random() < 0.6:
            data = serialize(hostile.mutate_fields(rng.getrandbits(32)))
        if rng.random() < 0.5:
            # The fields before the pixels are few bytes.
            data = spoil_bytes(data[:80], rng, other["message"][:80]) + data[80:]
        if rng.random() < 0.3:
            data = spoil_bytes(data, rng, other["message"])
        return {"message": data}

    def read(self, folder: Path, work: Path) -> list[int]:
        frame = view_image(read_image((folder / "message").read_bytes()), 0)
        return list(copy_as_bgr(frame).shape)


def serialize(fields: dict[str, object]) -> bytes:
    """A message of CDR from the fields of `hostile_images`."""
    values = dict(fields)
    header = make_header(0)
    header.stamp.sec, header.stamp.nanosec = values.pop("sec"), values.pop("nanosec")
    header.frame_id = values.pop("frame_id")
    data = np.frombuffer(values.pop("data"), np.uint8)  # type: ignore[call-overload]
    return bytes(STORE.serialize_cdr(STORE.types[_IMAGE](header, data=data, **values), _IMAGE))
