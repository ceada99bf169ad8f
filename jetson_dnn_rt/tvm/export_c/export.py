# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Exports a part of a network to a folder of self-contained C sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError, ModelError
from jetson_dnn_rt.tvm.compile import schedule
from jetson_dnn_rt.tvm.export_c.program import Program, make_program
from jetson_dnn_rt.tvm.export_c.sources import find_compiler_flag, write_sources
from jetson_dnn_rt.tvm.guesses import find_vector_unit
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.target import TvmTarget
from jetson_dnn_rt.tvm.tuning import TuningState, count_tuned

if TYPE_CHECKING:
    import tvm

    from jetson_dnn_rt.models.model import Part
    from jetson_dnn_rt.tvm.database import TuningDatabase

PRECISIONS = ("fp32",)

_SEED = 7


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export."""

    name: str  # prefix of files and C names, an identifier in lower case
    model: str  # human-readable description
    array: bool = False  # weights as constant arrays that are compiled in; else a file to load
    local: bool = True  # whether the code is for this machine

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name != self.name.lower():
            raise ConfigurationError(f"name must be an identifier in lower case: {self.name!r}")


@dataclass(frozen=True)
class Export:
    """Result of an export."""

    program: Program
    files: tuple[Path, ...]
    tuned: TuningState | None  # how far the kernels are tuned; None: no database, not tuned
    scheduled: tvm.IRModule  # the same kernels for TVM's own runtime

    @property
    def is_tuned(self) -> bool:
        """Whether every kernel has a schedule."""
        return self.tuned is not None and self.tuned.complete


def export_c(
    part: Part,
    precision: str,
    target: TvmTarget,
    database: TuningDatabase | None,
    options: ExportOptions,
    folder: Path,
) -> Export:
    """Write C sources of a network or of a run of its stages.

    Parameters
    ----------
    precision : str
        ``fp32``.
    target : TvmTarget
        Target of the schedules: an LLVM target with one thread.
    database : TuningDatabase or None
        Schedules; kernels that it lacks are written unscheduled, and are slow.
    folder : Path
        Created if missing; files of the same names are replaced.

    Raises
    ------
    BackendUnavailableError
        For another precision, a CUDA target, or several threads.
    ModelError
        When part of the network cannot be written as C99.
    """
    if precision not in PRECISIONS:
        raise BackendUnavailableError(
            f"export-c writes {', '.join(PRECISIONS)}, not {precision}: C99 has no type of half "
            "precision"
        )
    if target.kind != "llvm":
        raise BackendUnavailableError(f"export-c writes code for CPUs, not for {target.text}")
    if target.threads != 1:
        raise BackendUnavailableError("export-c writes code for one thread: C99 has no others")
    lowered = lower(part, precision, target)
    tuned = None if database is None else count_tuned(lowered, database)
    scheduled = schedule(lowered, target, database)
    program = make_program(scheduled, options.name, find_vector_unit(target).lanes)
    files = write_files(part, program, target, options, folder)
    return Export(program, files, tuned, scheduled)


def write_files(
    part: Part, program: Program, target: TvmTarget, options: ExportOptions, folder: Path
) -> tuple[Path, ...]:
    """Write all files of a program, including the self-test and its expected outputs."""
    name, array = program.name, options.array
    flag = find_compiler_flag(target, options.local)
    inputs, outputs = make_reference(part)
    network = program.network
    for side, values, names in (
        ("inputs", inputs, network.inputs),
        ("outputs", outputs, network.outputs),
    ):
        wanted = [network.tensor(name).shape for name in names]
        found = [value.shape for value in values]
        if wanted != found:
            raise ModelError(f"{side} have the shapes {found} in torch, {wanted} in TVM")
    sources = write_sources(program, options.model, flag, array=array)
    files = {file: text.encode() for file, text in sources.items()}
    if not array:
        files[f"{name}_weights.bin"] = program.weight_blob
    for side, values in (("input", inputs), ("output", outputs)):
        for number, value in enumerate(values):
            files[f"{name}_{side}_{number}.bin"] = value.astype("<f4").tobytes()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
    except OSError as error:
        raise ConfigurationError(f"cannot write to {folder}: {error.strerror or error}") from error
    return tuple(folder / file for file in files)


def make_reference(
    part: Part,
) -> tuple[list[npt.NDArray[np.float32]], list[npt.NDArray[np.float32]]]:
    """Draw random inputs and compute their outputs with torch, in float32.

    Returns
    -------
    inputs, outputs : list of ndarray
        Inputs are uniform in [0, 1), the range of an image.
    """
    import torch

    draw = np.random.default_rng(_SEED)
    inputs = [draw.random(shape, dtype=np.float32) for shape in part.input_shapes]
    module = part.torch_module()
    with torch.inference_mode():
        found = module(*(torch.from_numpy(each) for each in inputs))
    given = found if isinstance(found, (tuple, list)) else (found,)
    return inputs, [np.ascontiguousarray(each.float().numpy()) for each in given]
