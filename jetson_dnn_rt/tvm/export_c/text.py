"""Pieces of C text that several files share."""

from __future__ import annotations

import re

from jetson_dnn_rt.tvm.export_c.expressions import SCALARS
from jetson_dnn_rt.tvm.export_c.network import Tensor
from jetson_dnn_rt.tvm.export_c.program import Program


def make_identifier(text: str) -> str:
    """Make a name of C out of a model's: ``builtin:detector`` is ``builtin_detector``."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "network"
    return f"net_{name}" if name[0].isdigit() else name


def make_note(program: Program, about: str) -> str:
    """First lines of every file."""
    return f"/* {about} Written by jetson-dnn-rt export-c: change the model, not this file. */\n"


def guard(name: str, body: str) -> str:
    """A header that may be included twice."""
    mark = f"{name.upper()}_H"
    return f"#ifndef {mark}\n#define {mark}\n\n{body}\n#endif\n"


def describe_shape(tensor: Tensor) -> str:
    """``float [1, 3, 240, 320]``."""
    return f"{SCALARS[tensor.scalar]} [{', '.join(map(str, tensor.shape))}]"


def format_array(values: list[str], width: int = 99) -> str:
    """Values with commas, in lines."""
    lines, line = [], "   "
    for value in values:
        if len(line) + len(value) + 2 > width:
            lines.append(line)
            line = "   "
        line += f" {value},"
    return "\n".join([*lines, line])
