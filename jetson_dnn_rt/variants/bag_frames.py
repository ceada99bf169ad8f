"""Frames out of a ROS bag, read with rosbags: neither ROS nor a running graph is needed."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jetson_dnn_rt.cameras.image_messages import BadImageError, decode_image, view_image
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.variants.spread import spread

_DECODERS: dict[str, Callable[[Any, int], Frame]] = {
    "sensor_msgs/msg/Image": view_image,
    "sensor_msgs/msg/CompressedImage": decode_image,
}

logger = logging.getLogger(__name__)


def open_bag(name: str, limit: int) -> Iterator[Frame]:
    """Take up to `limit` frames, spread evenly over one topic of a bag.

    Parameters
    ----------
    name : str
        ``PATH`` or ``PATH#/topic``: a folder or file of rosbag2 (sqlite3, mcap) or of ROS 1.
    limit : int
        At least 1.

    Returns
    -------
    iterator of Frame
        Messages that are no images are passed over, and said in the log.

    Raises
    ------
    ConfigurationError
        When rosbags is missing, or it is not clear which topic is meant.
    SourceError
        When there is no such bag, it is damaged, or it holds no image.
    """
    path_text, _, topic = name.partition("#")
    path = Path(path_text).expanduser()
    if not path.exists():
        raise SourceError(f"bag {path} is not there: give the folder or the file of a bag")
    if importlib.util.find_spec("rosbags") is None:
        raise ConfigurationError(
            f"bag {path} is read with rosbags, which is not installed: pip install rosbags"
        )
    from rosbags.highlevel import AnyReader
    from rosbags.typesys import Stores, get_typestore

    try:
        reader = AnyReader([path], default_typestore=get_typestore(Stores.ROS2_HUMBLE))
        reader.open()
    except Exception as error:  # each storage has errors of its own
        raise SourceError(f"bag {path} cannot be read: {error}") from error
    try:
        connections = _choose_topic(reader, path, topic)
    except Exception:
        reader.close()
        raise
    return _read(reader, connections, path, limit)


def _choose_topic(reader: Any, path: Path, topic: str) -> list[Any]:
    """The connections of the topic that is asked for, or of the only one with images."""
    topics: dict[str, list[Any]] = {}
    for connection in reader.connections:
        if connection.msgtype in _DECODERS and connection.msgcount:
            topics.setdefault(connection.topic, []).append(connection)
    if not topics:
        raise SourceError(f"bag {path} holds no sensor_msgs Image and no CompressedImage")
    listed = ", ".join(sorted(topics))
    if topic and topic not in topics:
        raise ConfigurationError(f"bag {path} has no images on {topic!r}, but on {listed}")
    if not topic and len(topics) > 1:
        raise ConfigurationError(
            f"bag {path} has images on {listed}: say which, as in bag:{path}#{min(topics)}"
        )
    return topics[topic or listed]


def _read(reader: Any, connections: list[Any], path: Path, limit: int) -> Iterator[Frame]:
    chosen = set(spread(sum(connection.msgcount for connection in connections), limit))
    found, spoilt = 0, ""
    with contextlib.closing(reader):
        messages = reader.messages(connections=connections)
        for index in range(max(chosen) + 1):
            try:
                connection, _, data = next(messages)
                if index not in chosen:
                    continue
                message = reader.deserialize(data, connection.msgtype)
            except StopIteration:
                break
            except Exception as error:  # each storage has errors of its own
                raise SourceError(f"bag {path}, message {index}: {error}") from error
            try:
                yield _DECODERS[connection.msgtype](message, index)
                found += 1
            except BadImageError as error:
                spoilt = spoilt or f"message {index}: {error}"
    if not found:
        raise SourceError(f"bag {path} holds no image that can be read; {spoilt}")
    if spoilt:
        logger.warning(
            "bag %s: %d of %d messages are no images (%s)",
            path, len(chosen) - found, len(chosen), spoilt,
        )  # fmt: skip
