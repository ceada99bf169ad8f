"""Frames out of a ROS bag: neither ROS nor a running graph is needed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from jetson_dnn_rt.cameras.bags.image_bag import BagImage, ImageBag, open_image_bag
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.variants.measuring.spread import spread

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
        When there is no such bag, nothing of it can be read, or it holds no image.
    """
    path, _, topic = name.partition("#")
    return _read(open_image_bag(path, topic), limit)


def _read(bag: ImageBag, limit: int) -> Iterator[Frame]:
    with bag:
        for note in bag.notes:
            logger.warning("bag %s: %s", bag.path, note)
        chosen = spread(bag.count, limit)
        found, spoilt = 0, ""
        for index in chosen:
            message = bag.read_one(index)
            if isinstance(message, BagImage):
                found += 1
                yield message.frame
            else:
                spoilt = spoilt or f"message {index}: {message.reason}"
    if not found:
        raise SourceError(f"bag {bag.path} holds no image that can be read; {spoilt}")
    if spoilt:
        logger.warning(
            "bag %s: %d of %d messages are no images (%s)",
            bag.path, len(chosen) - found, len(chosen), spoilt,
        )  # fmt: skip
