# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Reading model files that are not trusted."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.safety.small_files import describe_pointer
from jetson_dnn_rt.safety.trust import open_code

if TYPE_CHECKING:
    import torch

# A protobuf message cannot be larger; networks for a robot's camera are a hundredth of it.
MAX_MODEL_BYTES = (1 << 31) - 1

SEARCHED_CHARACTERS = 2000
"""Of the text of an error of torch, in which it looks for the advice to give."""


def read_model_file(path: Path, *, is_code: bool = False) -> bytes:
    """Read a file whole, so that the bytes hashed are those that run, even if it changes later.

    Raises
    ------
    ModelError
        When it is missing, not a file, unreadable, empty or too large.
    UntrustedError
        When it is code (`is_code`) that others may change, see `safety.trust`.
    """
    path = path.expanduser()
    try:
        if is_code:
            descriptor, path = open_code(path)
        else:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise ModelError(f"model file {path} is not a regular file")
        with open(descriptor, "rb") as file:
            if status.st_size == 0:
                raise ModelError(f"model file {path} is empty")
            if status.st_size > MAX_MODEL_BYTES:
                raise ModelError(
                    f"model file {path} has {status.st_size} bytes, at most {MAX_MODEL_BYTES}"
                )
            data = file.read(status.st_size)
        if pointer := describe_pointer(data[:64]):
            raise ModelError(f"model file {path} {pointer}")
        return data
    except FileNotFoundError as error:
        where = "" if path.is_absolute() else f" in {Path.cwd()}"
        raise ModelError(f"model file {path} does not exist{where}; correct the path") from error
    except (OSError, ValueError) as error:  # ValueError: not a possible file name
        raise ModelError(f"model file {path} cannot be read: {error}") from error


def import_package(name: str, purpose: str) -> Any:
    """Import an optional package; `BackendUnavailableError` names what needs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        text = f"{purpose} needs the package {name} ({error}): pip install {name}"
        raise BackendUnavailableError(text) from error


def hash_bytes(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def hash_state(state: dict[str, torch.Tensor], name: str) -> str:
    """SHA-256 over the names, shapes and values of weights, and over the architecture's name."""
    digest = hashlib.sha256(name.encode())
    for key in sorted(state):
        tensor = state[key].detach().cpu().contiguous()
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def load_weights(path: Path) -> dict[str, torch.Tensor]:
    """Load a state dictionary without running anything that is in the file.

    ``.safetensors``, or a file of ``torch.save`` (read with ``weights_only=True``). `ModelError`
    where it is damaged, holds code, or something else than named tensors.
    """
    import torch

    data = read_model_file(path)
    if path.suffix == ".safetensors":
        import_package("safetensors", f"weights {path}")
        import safetensors
        import safetensors.torch

        try:
            return cast("dict[str, torch.Tensor]", safetensors.torch.load(data))
        except (safetensors.SafetensorError, ValueError, KeyError) as error:
            raise ModelError(f"weights {path} are damaged: {error}") from error
    state = unpickle_tensors(data, f"weights {path}")
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise ModelError(f"weights {path} are not a state dictionary (names to tensors)")
    return state


def unpickle_tensors(data: bytes, name: str) -> object:
    """Read what ``torch.save`` wrote, with ``weights_only=True``.

    `ModelError` where there is more than tensors in it, which is not run, or it is damaged.
    """
    import io
    import pickle
    import warnings

    import torch
    import torch.serialization

    if vars(torch.serialization).get("re") is re:
        vars(torch.serialization)["re"] = _ShortTexts()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickles older or newer than torch's own
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{name}: refused, the file holds more than tensors and may run code when read, or is "
            f"no file of weights; save it as safetensors. {first_line(error)}"
        ) from error
    except Exception as error:  # a damaged archive makes the reader raise anything
        raise ModelError(f"{name}: damaged. {first_line(error)}") from error


class _ShortTexts:
    """Module `re` for ``torch.serialization``, with a search of the first characters only.

    Its patterns take a time that grows with the square of the length of a word, and a name in the
    file is a word of an error's text: a name of a megabyte would take hours (torch 2.14).
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(re, name)

    def search(self, pattern: str, text: str, flags: int = 0) -> re.Match[str] | None:
        """Search the first `SEARCHED_CHARACTERS`."""
        return re.search(pattern, text[:SEARCHED_CHARACTERS], flags)


def first_line(error: Exception) -> str:
    """The first line of an error's text, 200 characters at most."""
    return (str(error).splitlines() or [""])[0][:200]
