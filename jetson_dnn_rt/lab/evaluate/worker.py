"""What happens to a request where a worker is, on whatever way it came there."""

from __future__ import annotations

import platform
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from jetson_dnn_rt.errors import (
    BackendUnavailableError,
    ConfigurationError,
    JetsonDnnRtError,
    ModelError,
    SourceError,
)
from jetson_dnn_rt.lab.evaluate.chunk import ChunkRequest, ChunkResult

ATTEMPTS = 3
"""A request that has lost so many workers is taken for what kills them."""

RunChunk = Callable[[ChunkRequest], ChunkResult]


class LostWorkersError(JetsonDnnRtError):
    """Workers are lost time and again over one request, or none is left."""


@dataclass(frozen=True)
class Failure:
    """An error of a worker, in words: exceptions themselves do not always travel.

    Attributes
    ----------
    kind : type
        A class whose only argument is a text.
    text : str
        What is wrong, and where.
    """

    kind: type[Exception]
    text: str


Answer = ChunkResult | Failure


def answer_request(run: RunChunk, request: ChunkRequest) -> Answer:
    """Run a request and look whether all of it was found; errors are made ready to travel."""
    machine = platform.node()
    try:
        result = run(request)
    except JetsonDnnRtError as error:
        plain = (SourceError, ConfigurationError, ModelError, BackendUnavailableError)
        kind: type[Exception] = type(error) if type(error) in plain else JetsonDnnRtError
        return Failure(kind, f"{machine}: {error}")
    except Exception:  # nobody foresaw it: its traceback is what helps
        request_text = describe_request(request)
        return Failure(RuntimeError, f"{machine}, {request_text}:\n{traceback.format_exc()}")
    found = result.frames + len(result.bad)
    if found != request.count:
        return Failure(
            SourceError,
            f"{machine}: {found} instead of {request.count} in {describe_request(request)}: is "
            "its copy of the bag the same as here?",
        )
    return result


def describe_request(request: ChunkRequest) -> str:
    """``messages 250 to 499 of /bags/drive``."""
    last = request.first + request.count - 1
    return f"messages {request.first} to {last} of {request.bag}"
