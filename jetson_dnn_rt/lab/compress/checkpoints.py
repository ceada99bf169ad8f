"""Files of long work to go on from: written whole or not at all, read without running code."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from jetson_dnn_rt.errors import ConfigurationError

logger = logging.getLogger(__name__)

_FINGERPRINT = "fingerprint"


def save_checkpoint(path: Path, fingerprint: str, state: Mapping[str, Any]) -> None:
    """Write a state of tensors, numbers and strings, in the place of the file that is there.

    Raises
    ------
    ConfigurationError
        When it cannot be written.
    """
    half = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with half.open("wb") as file:
            torch.save({_FINGERPRINT: fingerprint, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except OSError as error:
        raise ConfigurationError(
            f"checkpoint {path} cannot be written: {error.strerror}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            half.unlink()


def load_checkpoint(path: Path, fingerprint: str) -> dict[str, Any] | None:
    """Read a state back.

    Returns
    -------
    dict or None
        None where there is no file, or one that is damaged or of another run, which is said.
    """
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        found = state.pop(_FINGERPRINT)
    except Exception as error:  # torch.load raises what its many formats raise
        logger.warning("checkpoint %s is damaged (%s): begun anew", path, error)
        return None
    if found != fingerprint:
        logger.warning("checkpoint %s is of another run: begun anew", path)
        return None
    return dict(state)
