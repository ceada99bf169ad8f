# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Calibration of a camera: from the usual YAML file to a `CameraInfo` message."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import yaml

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety import small_files
from jetson_dnn_rt.safety import yaml_files as safe_yaml

if TYPE_CHECKING:
    from sensor_msgs.msg import CameraInfo

MAX_FILE_BYTES = 1 << 16

_MATRICES = (
    ("camera_matrix", "k", 9),
    ("rectification_matrix", "r", 9),
    ("projection_matrix", "p", 12),
)


def make_camera_info(url: str, height: int, width: int) -> CameraInfo:
    """Make the message of a camera with frames of `height` x `width` pixels.

    `url` is a path or ``file://`` URL of a file as ``camera_calibration`` writes it; empty = not
    calibrated, marked by ``k[0] == 0``. Raises `ConfigurationError` when the file cannot be read
    or is for another size.
    """
    from sensor_msgs.msg import CameraInfo

    info = CameraInfo(height=height, width=width, distortion_model="plumb_bob", d=[0.0] * 5)
    if not url:
        return info
    path = Path(unquote(urlparse(url).path) if url.startswith("file:") else url).expanduser()
    data = _read(path)
    size = (data.get("image_height"), data.get("image_width"))
    if size != (height, width):
        raise ConfigurationError(
            f"camera_info_url: {path} is for {safe_yaml.describe(size[1])}x"
            f"{safe_yaml.describe(size[0])} pixels, the camera delivers {width}x{height}"
        )
    try:
        for key, field, length in _MATRICES:
            values = _read_numbers(data[key], f"{path}: {key}")
            if len(values) != length:
                raise ConfigurationError(f"camera_info_url: {path}: {key} needs {length} values")
            setattr(info, field, values)
        distortion = "distortion_coefficients"
        info.d = _read_numbers(data[distortion], f"{path}: {distortion}")
        model = data["distortion_model"]
        if not isinstance(model, str):
            raise ConfigurationError(f"camera_info_url: {path}: distortion_model must be a text")
        info.distortion_model = model
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"camera_info_url: {path} lacks {error}") from error
    return info


def _read_numbers(part: Any, name: str) -> list[float]:
    values = part["data"]
    if not all(type(v) in (int, float) and abs(v) <= sys.float_info.max for v in values):
        shown = safe_yaml.describe(values)
        raise ConfigurationError(f"camera_info_url: {name} needs finite numbers: {shown}")
    return [float(v) for v in values]


def _read(path: Path) -> dict[str, Any]:
    try:
        data = safe_yaml.parse(small_files.read_text(path, MAX_FILE_BYTES))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            f"camera_info_url: {path} cannot be read: {text}; give a YAML file of "
            "camera_calibration"
        ) from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"camera_info_url: {path} holds no calibration")
    return data
