"""TensorRT's complaints with the place they are about and what to do."""

from __future__ import annotations

import re

from jetson_dnn_rt.backends.tensorrt.api import Heard

# What TensorRT 8.5 to 11 writes, and the fix; the first that is found counts.
_FIXES = (
    (
        r"CUDA initialization failure with error: 35|driver version is insufficient",
        "the NVIDIA driver is missing or older than this TensorRT's CUDA: install a newer one, or "
        "the TensorRT of your JetPack",
    ),
    (
        r"CUDA initialization failure|no CUDA-capable device",
        "look at the driver with nvidia-smi; in docker: --gpus all (on Jetson: --runtime nvidia)",
    ),
    (
        r"version tag does not match|[Ss]erialization ?[Aa]ssertion|[Ii]ncompatible.*engine|"
        r"generated on an incompatible device|magicTag|magic tag",
        "the engine is of another TensorRT or GPU: build it again here "
        "(`jetson-dnn-rt library prune`, `jetson-dnn-rt build`)",
    ),
    (
        r"[Oo]ut ?[Oo]f ?[Mm]emory|insufficient (memory|workspace)|OutOfMemory|"
        r"[Cc]ould not find any implementation",
        "give it more memory: raise workspace_mib, end what else uses the GPU, or cut the model "
        "into more stages",
    ),
    (
        r"No importer registered|[Uu]nsupported|UNSUPPORTED|not supported|Plugin not found",
        "TensorRT cannot run this operator: take another back end for this stage",
    ),
    (
        r"DLA",
        "the DLA takes few layers: leave dla_core out, or look which layers it refuses",
    ),
)


def find_fix(text: str) -> str:
    """What to do about a message; empty where nothing better is known than its text."""
    return next((fix for pattern, fix in _FIXES if re.search(pattern, text)), "")


def explain(what: str, heard: Heard, details: tuple[str, ...] = ()) -> str:
    """One line: what failed, TensorRT's words, and the fix.

    Parameters
    ----------
    what : str
        What was attempted, with the name of the model.
    heard : Heard
        What TensorRT logged. 8.x logs a missing driver as a warning: those count where there is
        no error.
    details : tuple of str
        What else is known, layers above all; said first.
    """
    said = [*details, *(heard.errors or heard.warnings[-3:])]
    text = "; ".join(" ".join(line.split()) for line in dict.fromkeys(said)) or "no reason given"
    fix = find_fix(text)
    return f"{what}: {text}" + (f". {fix[0].upper()}{fix[1:]}" if fix else "")
