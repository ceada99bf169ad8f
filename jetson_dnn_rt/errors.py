# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Errors of the package. A missed deadline is a record, never an exception."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jetson_dnn_rt.printable import make_printable

LONGEST_TEXT = 10_000
"""Characters of an error's text: more is a file that is quoted."""


class JetsonDnnRtError(Exception):
    """Base of every error raised on purpose; its text names the problem and the fix.

    The text often quotes from a file. What could act on a terminal, or cannot be encoded, is shown
    as ``?``, and the text is cut off at `LONGEST_TEXT`.

    `parameter` is the ROS name of the one whose value is to blame, where that is known: who read
    the value from a file can then say on which line it is.
    """

    def __init__(self, message: str = "", parameter: str = "") -> None:
        if len(message) > LONGEST_TEXT:
            message = f"{message[:LONGEST_TEXT]} ..."
        super().__init__(make_printable(message, lines=True))
        self.parameter = parameter


@contextmanager
def blaming(parameter: str) -> Iterator[None]:
    """Let errors that name no parameter name this one, whose value is being used."""
    try:
        yield
    except JetsonDnnRtError as error:
        error.parameter = error.parameter or parameter
        raise


class ConfigurationError(JetsonDnnRtError):
    """A parameter, a file of parameters or a combination of them cannot be used."""


def describe_os_error(error: OSError) -> str:
    """What failed, a file where the error names one, and the system's reason."""
    return f"{error.filename or 'reading or writing'}: {error.strerror or error}"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn an OSError into a ConfigurationError with the file that it names, else with `path`.

    One that is raised while a file is written, or closed, names none.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(f"cannot write {error.filename or path}: {reason}") from error


class BackendUnavailableError(JetsonDnnRtError):
    """A back end or a precision is not available on this machine."""


class NotBuiltError(BackendUnavailableError):
    """A variant is not in the library yet."""


class ModelError(JetsonDnnRtError):
    """A model is missing, damaged, not trusted, or not what the task needs."""


class FrameError(JetsonDnnRtError):
    """A frame cannot be read as an image: encoding, step, size or data are wrong."""


class SourceError(JetsonDnnRtError):
    """A frame source (camera, video, folder) cannot be opened or has stopped."""


class JobTraceError(JetsonDnnRtError, ValueError):
    """A job trace is missing, damaged, or of a later version."""


class UnschedulableError(JetsonDnnRtError):
    """The task set cannot keep its deadlines and the configuration refuses to try."""


class PlatformError(JetsonDnnRtError):
    """The board's clocks or power cannot be read or set."""


class StillRunningError(JetsonDnnRtError, TimeoutError):
    """A stage of a task has not returned yet, so its resources cannot be released."""


class NotAnsweringError(JetsonDnnRtError, TimeoutError):
    """The executor cannot be asked: a thread has not let go of its lock for too long."""


class RunCancelledError(JetsonDnnRtError):
    """A run of a network ended early because another thread cancelled it; it has no result."""


class NotANumberError(JetsonDnnRtError):
    """A network returned NaN; `stage` is None when only its last outputs were checked."""

    def __init__(self, message: str, stage: str | None = None) -> None:
        super().__init__(message)
        self.stage = stage
