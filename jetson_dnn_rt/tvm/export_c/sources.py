# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The C files around the kernels, and the files that build them."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.tvm.export_c.expressions import SCALARS, format_number
from jetson_dnn_rt.tvm.export_c.kernels import ALIGNMENT
from jetson_dnn_rt.tvm.export_c.planner import round_up
from jetson_dnn_rt.tvm.export_c.program import Program
from jetson_dnn_rt.tvm.target import TVM_FIX, TvmTarget

_TEMPLATES = Path(__file__).parent / "templates"

TOLERANCE = 1e-4
"""Tolerance of the self-test between C code and torch, relative to an output's largest value."""


def make_identifier(text: str) -> str:
    """Turn a model's name into a C identifier: ``builtin:detector`` is ``builtin_detector``."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "network"
    return f"net_{name}" if name[0].isdigit() else name


def make_comment(text: str) -> str:
    """Turn a name, which may come from a file, into text that stays within a comment of C."""
    # A line break and a backslash before one, and trigraphs, need not be thought of then.
    return re.sub(r"[^\w .,:;@/+=()\[\]-]", "?", text, flags=re.ASCII)


def write_sources(program: Program, model: str, flag: str, *, array: bool) -> dict[str, str]:
    """Text of every source and build file, by name.

    `model` is a human-readable description; `flag` comes from `find_compiler_flag`. With `array`
    the weights are compiled in.

    The self-test reads its files from the folder that is its first argument. With a second
    argument N it prints the time of every operator, the least of N.
    """
    try:
        import jinja2
    except ImportError as error:
        raise BackendUnavailableError(f"export-c needs jinja2: {TVM_FIX}") from error

    name, network = program.name, program.network
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), undefined=jinja2.StrictUndefined,
        trim_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["comment"] = make_comment
    environment.globals |= {
        "program": program, "name": name, "NAME": name.upper(), "model": model, "flag": flag,
        "array": array, "alignment": ALIGNMENT, "tolerance": f"{TOLERANCE:g}",
        "inputs": [network.tensor(each) for each in network.inputs],
        "outputs": [network.tensor(each) for each in network.outputs],
        "steps": [(call.kernel, _list_places(program, step, array))
                  for step, call in enumerate(network.calls)],
        "copies": _list_copies(program, array),
    }  # fmt: skip

    def render(template: str, **values: object) -> str:
        return environment.get_template(template).render(values)

    files = {
        f"{name}.h": render("network.h"),
        f"{name}.c": render("network.c"),
        f"{name}_selftest.c": render("selftest.c"),
        f"{name}_kernels.h": render("kernels.h"),
        "Makefile": render("Makefile"),
        "CMakeLists.txt": render("CMakeLists.txt"),
    }
    for end, kernels in (("", program.portable.values()), ("_gnu", program.kernels.values())):
        lanes = sorted({lanes for kernel in kernels for lanes in kernel.lanes}) if end else None
        text = "\n".join(kernel.text for kernel in kernels)
        files[f"{name}_kernels{end}.c"] = render("kernels.c", kernels=text, lanes=lanes)
    if array:
        weights = _format_weights(program)
        files |= {f"{name}_{f}": render(f, weights=weights) for f in ("weights.h", "weights.c")}
    return files


def _format_weights(program: Program) -> list[tuple[str, str]]:
    """Declaration and values of each weight as a constant array."""
    found = []
    for name, value in program.network.constants.items():
        kind = value.dtype.name
        numbers = (format_number(number, kind) for number in value.reshape(-1).tolist())
        text = textwrap.fill(
            ", ".join(numbers) + ",", 99, initial_indent="    ", subsequent_indent="    ",
            break_on_hyphens=False,
        )  # fmt: skip
        size = max(1, value.size)
        found.append((f"const {SCALARS[kind]} {program.name}_{name}[{size}]", text))
    return found


def _list_places(program: Program, step: int, array: bool) -> list[str]:
    """Arguments of the kernel of a step: operands and workspaces."""
    call = program.network.calls[step]
    places = [_place(program, each, array, reads=True) for each in call.inputs]
    places += [_place(program, each, array, reads=False) for each in call.outputs]
    offset = program.plan.offsets.get(f"workspace of {step}", 0)
    for each in program.kernels[call.kernel].workspaces:
        places.append(f"VALUE({SCALARS[each.scalar]}, {offset})")
        offset += round_up(each.bytes, ALIGNMENT)
    return places


def _place(program: Program, value: str, array: bool, *, reads: bool) -> str:
    network = program.network
    kind = network.tensor(value).c_type
    if value in network.constants:
        if array:
            return f"{program.name}_{value}"
        return f"WEIGHT({kind}, {program.weight_offsets[value]})"
    # Kernels that read an output read it in the caller's memory too.
    if value in network.outputs and value not in network.inputs:
        return f"io->output_{network.outputs.index(value)}"
    if value in network.inputs:
        return f"io->input_{network.inputs.index(value)}"
    return f"VALUE({f'const {kind}' if reads else kind}, {program.plan.offsets[value]})"


def _list_copies(program: Program, array: bool) -> list[str]:
    """Copy statements for outputs that are also inputs or constants, or occur twice."""
    network, lines = program.network, []
    for number, value in enumerate(network.outputs):
        first = network.outputs.index(value)
        if value in network.inputs or value in network.constants:
            source = _place(program, value, array, reads=True)
        elif first != number:
            source = f"io->output_{first}"
        else:
            continue
        lines.append(f"memcpy(io->output_{number}, {source}, {network.tensor(value).bytes}u);")
    return lines


def find_compiler_flag(target: TvmTarget, local: bool) -> str:
    """Flag that tells gcc and clang the processor; `local`: this machine's."""
    option = "-mcpu" if target.triple.startswith("aarch64") else "-march"
    # LLVM and gcc use the same names, but an older gcc may not know a new one.
    return f"{option}={'native' if local else target.cpu}"
