"""Decompression with an end: Zstandard and LZ4, which rosbags brings along, and bzip2."""

from __future__ import annotations

import bz2
import importlib
from typing import Any

from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError

MAGIC = b"\x28\xb5\x2f\xfd"
"""First bytes of a frame (RFC 8878, section 3.1.1); no CDR message begins so."""

MAX_PLAIN = 256 << 20
"""Bytes of a message, or of a chunk of messages."""

_MAX_RATIO = 100
_FREE = 32 << 20
"""So many bytes may come of any few: black images are a ten-thousandth of themselves."""

_PIECE, _MOST = 1 << 16, 1 << 20
"""Bytes that go into a decompressor at once, and that may come out."""


class BadCompressionError(JetsonDnnRtError):
    """Bytes cannot be decompressed, or would become too many."""


def limit_plain(stored: int) -> int:
    """Bytes that `stored` compressed ones may become: the rest is taken for a bomb."""
    return min(MAX_PLAIN, _FREE + _MAX_RATIO * stored)


def decompress(
    data: bytes | memoryview, *, compression: str = "zstd", size: int | None = None
) -> memoryview:
    """Decompress a message or a chunk piece by piece, up to `limit_plain` of its bytes.

    Parameters
    ----------
    data : bytes or memoryview
        One frame; of one that is cut off as much as there is.
    compression : str
        ``zstd``, ``lz4`` or ``bz2``.
    size : int, optional
        Of the plain bytes as their container says it; those behind are left out.

    Raises
    ------
    BadCompressionError
        When the data are damaged, or more than the limit.
    """
    limit = limit_plain(len(data))
    if size is not None and size > limit:
        raise BadCompressionError(
            f"{len(data)} compressed bytes are said to be {size}, more than the {limit} accepted"
        )
    if compression == "zstd":
        decompressor = import_zstd().ZstdDecompressor()
    elif compression == "lz4":
        decompressor = importlib.import_module("lz4.frame").LZ4FrameDecompressor()
    elif compression == "bz2":
        decompressor = bz2.BZ2Decompressor()
    else:
        raise BadCompressionError(f"compression {compression[:20]!r} is not known")
    end = limit + 1 if size is None else size
    plain = bytearray()
    position = 0
    try:
        while len(plain) < end and not decompressor.eof:
            piece = memoryview(b"")
            if decompressor.needs_input is not False:
                if position == len(data):
                    break  # cut off
                piece = memoryview(data)[position : position + _PIECE]
                position += len(piece)
            plain += decompressor.decompress(piece, max_length=min(_MOST, end - len(plain)))
    except Exception as error:  # each library has its own
        raise BadCompressionError(str(error)[:200]) from error
    if len(plain) > limit:
        raise BadCompressionError(f"{len(data)} bytes become more than the {limit} accepted")
    return memoryview(plain)


def import_zstd() -> Any:
    """Give the module with ``ZstdDecompressor`` and ``ZstdError``.

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
