"""Message types of bags: images have been the same in all releases of ROS 2."""

from __future__ import annotations

import functools
from typing import Any


@functools.lru_cache(maxsize=1)
def _load_types() -> Any:
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_HUMBLE)


def deserialize_cdr(data: bytes | memoryview, kind: str) -> Any:
    """Make a message of CDR; arrays are views of `data`, nothing is copied.

    Parameters
    ----------
    data : bytes or memoryview
        With the four bytes of encapsulation in front.
    kind : str
        ``sensor_msgs/msg/Image``.
    """
    return _load_types().deserialize_cdr(memoryview(data), kind)
