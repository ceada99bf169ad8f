"""Zstandard, which rosbags brings along."""

from __future__ import annotations

import importlib
from typing import Any

from jetson_dnn_rt.errors import ConfigurationError

MAGIC = b"\x28\xb5\x2f\xfd"
"""First bytes of a frame (RFC 8878, section 3.1.1); no CDR message begins so."""


def import_zstd() -> Any:
    """Give the module with ``decompress``, ``ZstdDecompressor`` and ``ZstdError``.

    Raises
    ------
    ConfigurationError
        When there is none.
    """
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ConfigurationError(
        "compressed bags are read with the Zstandard module that comes with rosbags >= 0.11, "
        "which is missing: pip install 'jetson_dnn_rt[bags]'"
    )
