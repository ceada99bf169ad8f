# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The table of formats, and what one has to say about itself."""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fuzzing.mutations import spoil_bytes

Files = Mapping[str, bytes]
"""An input: contents of files by their paths below a folder."""

FORMATS = {
    "picture": "fuzzing.messages:Picture",
    "image": "fuzzing.messages:RawImage",
    "mcap": "fuzzing.bags:Mcap",
    "db3": "fuzzing.bags:Db3",
    "ros1": "fuzzing.bags:Ros1",
    "onnx": "fuzzing.networks:Onnx",
    "pt2": "fuzzing.networks:Program",
    "weights": "fuzzing.networks:Weights",
    "tar": "fuzzing.libraries:Transfer",
    "entry": "fuzzing.libraries:EntryFile",
    "tuning": "fuzzing.tuning:Records",
    "tables": "fuzzing.texts:Tables",
    "parameters": "fuzzing.texts:Parameters",
    "labels": "fuzzing.texts:Labels",
    "coco": "fuzzing.texts:Coco",
    "scenario": "fuzzing.texts:ScenarioFiles",
    "results": "fuzzing.texts:Results",
    "calibration": "fuzzing.texts:Calibration",
    "parquet": "fuzzing.traces:Parquet",
    "arrows": "fuzzing.traces:Stream",
}
"""Classes by the name of the format."""

PLANTED = "fuzzing.planted:Planted"
"""A format whose reader has every fault that a campaign must find: the test of the campaign."""


class Format:
    """A file format: sound inputs, how they are spoilt, and the package's reader of them."""

    packages: tuple[str, ...] = ()
    """What must be installed beside the package itself; else the format is left out."""
    starts_python = False
    """Whether its reader runs children of this interpreter (`jetson_dnn_rt.safety.sandbox`)."""
    imports: tuple[str, ...] = ()
    """Modules that a reader may import though a file bears their name, by the reader's choice."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        """Sound inputs by name, made by the package itself; `folder` is empty."""
        raise NotImplementedError

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        """Inputs that were made by hand, by what is wrong with them; `sound` are the others."""
        return {}

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        """A spoilt copy of an input; `other` is one to take pieces from."""
        name = rng.choice(sorted(files))
        piece = other.get(name) or rng.choice(list(other.values()))
        return {**files, name: spoil_bytes(files[name], rng, piece)}

    def read(self, folder: Path, work: Path) -> Any:
        """Read an input with the package's public reader; what it found, as JSON can hold.

        `work` is an empty folder for what a reader writes.
        """
        raise NotImplementedError


def load_format(name: str) -> Format:
    """The format of a name in `FORMATS`."""
    module, _, kind = (PLANTED if name == "planted" else FORMATS[name]).partition(":")
    made: Format = getattr(importlib.import_module(module), kind)()
    return made


def read_folder(folder: Path) -> dict[str, bytes]:
    """The input that a folder holds."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def write_folder(folder: Path, files: Files) -> None:
    """Write an input to a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
