# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ROS context of a process, also where ROS cannot write its log files."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from rclpy.context import Context

NO_LOG_FILES = ("--ros-args", "--disable-external-lib-logs")

_LOGGING = "failed to initialize logging"

_UNUSABLE = ("Couldn't parse", "ROS_DOMAIN_ID")

_PLACE = re.compile(r", at \S+:\d+")
"""Lines of rcl's sources in the text of an error."""

logger = logging.getLogger(__name__)


def open_context(args: Sequence[str] = ()) -> Context:
    """Initialise ROS with these arguments, without its signal handlers.

    rcl refuses to start where it cannot make its log folder: without a home folder, on a disk that
    is full or read-only. Then there are no log files, which is logged; everything else works.

    ConfigurationError: ROS cannot use the arguments or the environment.
    """
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    def open_with(given: Sequence[str]) -> Context:
        context = rclpy.Context()
        try:
            rclpy.init(
                args=list(given), context=context, signal_handler_options=SignalHandlerOptions.NO
            )
        except BaseException:
            context.try_shutdown()
            raise
        return context

    try:
        return open_with(args)
    except Exception as error:  # rclpy's own class has no public name
        if _LOGGING not in str(error):
            if (refusal := _explain(error)) is not None:
                raise ConfigurationError(refusal) from error
            raise
        context = open_with([*args, *NO_LOG_FILES])
        reason = str(error).partition(f"{_LOGGING}: ")[2].partition(", at ")[0]
        logger.warning(
            "no ROS log files: %s; fix: set ROS_LOG_DIR to a folder that can be written", reason
        )
        return context


def _explain(error: Exception) -> str | None:
    """What ROS cannot use of its arguments and environment; None for other errors."""
    if type(error).__name__ == "UnknownROSArgsError":  # it has no public name
        return f"there is no ROS argument {error}; --help has an example"
    text = _PLACE.sub("", str(error)).partition("failed to initialize rcl: ")[2]
    return text if any(words in text for words in _UNUSABLE) else None
