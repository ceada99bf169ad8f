"""Python's log records of the package, sent to ROS' log (console, file and /rosout)."""

from __future__ import annotations

import logging

PACKAGE = "jetson_dnn_rt"


class RosHandler(logging.Handler):
    """Hands records to the rclpy logger of the same name."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record at its level."""
        from rclpy.logging import LoggingSeverity, get_logger

        try:
            text = self.format(record)
            logger = get_logger(record.name)
            # One call site for all levels would be refused: rclpy remembers a level per line.
            if record.levelno >= logging.CRITICAL:
                logger.fatal(text)
            elif record.levelno >= logging.ERROR:
                logger.error(text)
            elif record.levelno >= logging.WARNING:
                logger.warning(text)
            elif record.levelno >= logging.INFO:
                logger.info(text)
            else:
                logger.log(text, LoggingSeverity.DEBUG)
        except Exception:
            self.handleError(record)


def use_ros_logging() -> None:
    """Send the package's log records to ROS, once per process."""
    logger = logging.getLogger(PACKAGE)
    if not any(isinstance(handler, RosHandler) for handler in logger.handlers):
        logger.addHandler(RosHandler())
        logger.setLevel(logging.INFO)
        logger.propagate = False
