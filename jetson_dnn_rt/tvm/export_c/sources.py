"""The C files around the kernels, and the files that build them."""

from __future__ import annotations

import math
import re
from pathlib import Path

from jetson_dnn_rt.tvm.export_c.expressions import SCALARS, format_number
from jetson_dnn_rt.tvm.export_c.kernels import ALIGNMENT
from jetson_dnn_rt.tvm.export_c.planner import round_up
from jetson_dnn_rt.tvm.export_c.program import Program, Tensor
from jetson_dnn_rt.tvm.target import TvmTarget

_TEMPLATES = Path(__file__).parent / "templates"
_WEIGHT_ARGUMENTS = "const void *weights, size_t weights_bytes, "

TOLERANCE = 1e-4
"""Of the largest value of an output: what the self-test allows between the C code and torch."""

_INCLUDES = """\
#include <math.h>
#include <stddef.h>
#include <stdint.h>
"""

_TYPES = {"float32": "float", "float64": "double", "int32": "int32_t", "int64": "int64_t"}

_VECTOR_HELPERS = """
/* Vectors of GNU C, aligned as floats are. They may alias them. */
#define V_SELECT(type, a, b, sign) __extension__ ({ \\
    const type a_ = (a), b_ = (b); \\
    const __typeof__(a_ > b_) mask_ = a_ sign b_; \\
    (type)((mask_ & (__typeof__(mask_))a_) | (~mask_ & (__typeof__(mask_))b_)); })
#define V_MAX(type, a, b) V_SELECT(type, a, b, >)
#define V_MIN(type, a, b) V_SELECT(type, a, b, <)
"""


def _fill(file: str, array: bool, **values: object) -> str:
    """Fill in a template: ``@name@`` is a value, ``@if blob@`` begins what arrays leave out."""
    text = (_TEMPLATES / file).read_text(encoding="utf-8")
    text = re.sub(r"@if blob@\n(.*?)@end@\n", "" if array else r"\1", text, flags=re.DOTALL)
    return re.sub(r"@(\w+)@", lambda found: str(values[found[1]]), text)


def make_identifier(text: str) -> str:
    """Make a name of C out of a model's: ``builtin:detector`` is ``builtin_detector``."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "network"
    return f"net_{name}" if name[0].isdigit() else name


def make_note(program: Program, about: str) -> str:
    """First lines of every file."""
    return f"/* {about} Written by jetson-dnn-rt export-c: change the model, not this file. */\n"


def _guard(name: str, body: str) -> str:
    """A header that may be included twice."""
    mark = f"{name.upper()}_H"
    return f"#ifndef {mark}\n#define {mark}\n\n{body}\n#endif\n"


def _describe_shape(tensor: Tensor) -> str:
    """``float [1, 3, 240, 320]``."""
    return f"{SCALARS[tensor.scalar]} [{', '.join(map(str, tensor.shape))}]"


def _format_array(values: list[str]) -> str:
    """Values with commas, in lines."""
    lines, line = [], "   "
    for value in values:
        if len(line) + len(value) + 2 > 99:
            lines.append(line)
            line = "   "
        line += f" {value},"
    return "\n".join([*lines, line])


def write_header(program: Program, model: str, *, array: bool) -> str:
    """``NAME.h``: what a program that uses the network includes.

    `model` says what it is, for people; with `array` the weights are compiled in.
    """
    name, upper = program.name, program.name.upper()
    members = []
    for number, each in enumerate(program.network.inputs):
        tensor = program.tensor(each)
        kind = SCALARS[tensor.scalar]
        members.append(
            f"    const {kind} *input_{number}; /* {_describe_shape(tensor)}: {each} */"
        )
    for number, each in enumerate(program.network.outputs):
        tensor = program.tensor(each)
        kind = SCALARS[tensor.scalar]
        members.append(f"    {kind} *output_{number}; /* {_describe_shape(tensor)} */")
    sizes = [
        f"#define {upper}_{side}_{number}_ELEMENTS {math.prod(program.tensor(each).shape)}u"
        for side, names in (("INPUT", program.network.inputs), ("OUTPUT", program.network.outputs))
        for number, each in enumerate(names)
    ]
    weights = "Weights are compiled in." if array else f"Weights are the file {name}_weights.bin."
    body = _fill(
        "network.h",
        array,
        name=name,
        NAME=upper,
        model=model,
        weights=weights,
        arena_bytes=program.plan.arena_bytes,
        bound_bytes=program.plan.bound_bytes,
        stack_bytes=program.stack_bytes,
        alignment=ALIGNMENT,
        weights_bytes=len(program.weight_blob),
        weight_sum=program.weight_sum,
        steps=len(program.network.calls),
        macs=program.macs,
        sizes="\n".join(sizes),
        members="\n".join(members),
        held="" if array else ", and so must the weights, which are checked",
        arguments="" if array else _WEIGHT_ARGUMENTS,
    )
    return make_note(program, f"{model}: interface.") + _guard(name, body)


def write_driver(program: Program, *, array: bool) -> str:
    """``NAME.c``: the operators in order, with the place of each value."""
    name, upper = program.name, program.name.upper()
    cases, names = [], []
    for step, call in enumerate(program.network.calls):
        places = [_place(program, each, array, reads=True) for each in call.inputs]
        places += [_place(program, each, array, reads=False) for each in call.outputs]
        places += [f"VALUE({kind}, {offset})" for kind, offset in place_workspaces(program, step)]
        listed = ",\n            ".join(places)
        cases.append(f"    case {step}:\n        {name}_{call.kernel}(\n            {listed});")
        cases.append("        break;")
        names.append(f'    "{name}_{call.kernel}",')
    extra = _list_copies(program, array)
    pointers = [f"io->input_{number} == NULL" for number in range(len(program.network.inputs))]
    pointers += [f"io->output_{number} == NULL" for number in range(len(program.network.outputs))]
    unused = "    (void)net;\n" if not any("net->" in case for case in (*cases, *extra)) else ""
    return _fill(
        "network.c",
        array,
        note=make_note(program, f"{name}: the operators in order."),
        name=name,
        NAME=upper,
        include=f'#include "{name}_weights.h"' if array else "",
        step_names="\n".join(names),
        arguments="" if array else _WEIGHT_ARGUMENTS,
        or_no_weights="" if array else " || weights == NULL",
        weights="NULL" if array else "(const unsigned char *)weights",
        unused=unused,
        cases="\n".join(cases),
        copies=_copy_block(program, extra),
        no_pointers=" || ".join(pointers),
    )


def place_workspaces(program: Program, step: int) -> list[tuple[str, int]]:
    """C type and offset of each work space of a step."""
    places, kernel = [], program.kernel_of(step)
    offset = program.plan.offsets.get(f"workspace of {step}", 0)
    for each in kernel.workspaces:
        places.append((SCALARS[each.scalar], offset))
        offset += round_up(each.bytes, ALIGNMENT)
    return places


def _place(program: Program, value: str, array: bool, *, reads: bool) -> str:
    network = program.network
    kind = SCALARS[program.tensor(value).scalar]
    if value in network.constants:
        if array:
            return f"{program.name}_{value}"
        return f"WEIGHT({kind}, {program.weight_offsets[value]})"
    # An output is the caller's memory also for kernels that read it.
    if value in network.outputs and value not in network.inputs:
        return f"io->output_{network.outputs.index(value)}"
    if value in network.inputs:
        return f"io->input_{network.inputs.index(value)}"
    offset = program.plan.offsets[value]
    return f"VALUE({f'const {kind}' if reads else kind}, {offset})"


def _list_copies(program: Program, array: bool) -> list[str]:
    """Statements for outputs that are also inputs or constants, or are there twice."""
    network, lines = program.network, []
    for number, value in enumerate(network.outputs):
        first = network.outputs.index(value)
        if value in network.inputs or value in network.constants:
            source = _place(program, value, array, reads=True)
        elif first != number:
            source = f"io->output_{first}"
        else:
            continue
        lines.append(f"memcpy(io->output_{number}, {source}, {program.tensor(value).bytes}u);")
    return lines


def _copy_block(program: Program, lines: list[str]) -> str:
    if not lines:
        return ""
    listed = "\n".join(f"        {line}" for line in lines)
    return f"    if (step == {program.name.upper()}_STEPS - 1) {{\n{listed}\n    }}\n"


def write_kernel_header(program: Program) -> str:
    """``NAME_kernels.h``: declarations of the kernels."""
    declared = []
    for kernel in program.kernels.values():
        head, _, _ = kernel.text.partition("\n{\n")
        declared.append(
            f"/* {kernel.macs} multiply-accumulates, {kernel.operations} operations on floats; "
            f"work space {kernel.workspace_bytes} bytes. */\n{head};\n"
        )
    body = "#include <stdint.h>\n\n" + "\n".join(declared)
    return make_note(program, f"{program.name}: kernels.") + _guard(
        f"{program.name}_kernels", body
    )


def write_kernels(program: Program, *, vectors: bool) -> str:
    """``NAME_kernels.c``, ISO C99; or ``NAME_kernels_gnu.c``, with vectors of GNU C."""
    kernels = (program.kernels if vectors else program.portable).values()
    way = "with vectors of GNU C" if vectors else "in ISO C99"
    text = make_note(program, f"{program.name}: kernels {way}, from schedules of TVM.")
    text += f'#include "{program.name}_kernels.h"\n\n{_INCLUDES}'
    bodies = "".join(kernel.text for kernel in kernels)
    for sign, word in ((">", "max"), ("<", "min")):
        for scalar, kind in _TYPES.items():
            # clang warns of a function that nobody calls.
            if f"{word}_{scalar}(" in bodies:
                text += (
                    f"\nstatic inline {kind} {word}_{scalar}({kind} a, {kind} b)\n"
                    f"{{\n    return a {sign} b ? a : b;\n}}\n"
                )
    if vectors:
        text += _VECTOR_HELPERS
        for lanes in sorted({lanes for kernel in kernels for lanes in kernel.lanes}):
            text += (
                f"typedef float v{lanes} "
                f"__attribute__((vector_size({4 * lanes}), aligned(4), may_alias));\n"
            )
    return text + "\n" + "\n".join(kernel.text for kernel in kernels)


def write_weights(program: Program) -> tuple[str, str]:
    """``NAME_weights.h`` and ``NAME_weights.c``: the weights as constant arrays."""
    name = program.name
    declared, defined = [], []
    for weight, value in program.network.constants.items():
        kind = SCALARS[value.dtype.name]
        head = f"const {kind} {name}_{weight}[{max(1, value.size)}]"
        declared.append(f"extern {head};")
        values = _format_array(
            [format_number(each.item(), value.dtype.name) for each in value.reshape(-1)]
        )
        defined.append(f"{head} = {{\n{values}\n}};\n")
    note = make_note(program, f"{name}: weights.")
    body = "#include <stdint.h>\n\n" + "\n".join(declared) + "\n"
    source = f'{note}#include "{name}_weights.h"\n\n#include <math.h>\n\n' + "\n".join(defined)
    return note + _guard(f"{name}_weights", body), source


# -- build files ---------------------------------------------------------------------------------


def find_compiler_flag(target: TvmTarget, local: bool) -> str:
    """What tells gcc and clang about the processor; `local`: it is this machine's."""
    if local:
        return "-mcpu=native" if target.triple.startswith("aarch64") else "-march=native"
    # LLVM and gcc have the same names, but an older gcc does not know a new one.
    option = "-mcpu" if target.triple.startswith("aarch64") else "-march"
    return f"{option}={target.cpu}"


def write_build_files(name: str, flag: str, *, array: bool) -> dict[str, str]:
    """``Makefile`` (library, self-test, ``make test``) and ``CMakeLists.txt``, by name."""
    return {
        file: _fill(file, array, name=name, flag=flag, weights=f" {name}_weights.{end}" * array)
        for file, end in (("Makefile", "o"), ("CMakeLists.txt", "c"))
    }


def write_selftest(program: Program, *, array: bool) -> str:
    """``NAME_selftest.c``.

    It reads its files from the folder that is its first argument. A second argument N asks for the
    time of every operator, the least of N.
    """
    name, upper = program.name, program.name.upper()
    inputs = [program.tensor(each) for each in program.network.inputs]
    outputs = [program.tensor(each) for each in program.network.outputs]
    declared, reads, members, compares, again = [], [], [], [], []
    for number, tensor in enumerate(inputs):
        kind = SCALARS[tensor.scalar]
        declared.append(f"static {kind} input_{number}[{upper}_INPUT_{number}_ELEMENTS];")
        reads.append(
            f'read_file("{name}_input_{number}.bin", input_{number}, sizeof input_{number})'
        )
        members.append(f"    io.input_{number} = input_{number};")
    for number, tensor in enumerate(outputs):
        kind, count = SCALARS[tensor.scalar], f"{upper}_OUTPUT_{number}_ELEMENTS"
        for what in ("output", "first", "expected"):
            declared.append(f"static {kind} {what}_{number}[{count}];")
        reads.append(
            f'read_file("{name}_output_{number}.bin", expected_{number}, sizeof expected_{number})'
        )
        members.append(f"    io.output_{number} = output_{number};")
        compares.append(
            f"    bad |= compare({number}, output_{number}, expected_{number}, {count});\n"
            f"    memcpy(first_{number}, output_{number}, sizeof first_{number});"
        )
        again.append(f"memcmp(first_{number}, output_{number}, sizeof first_{number}) != 0")
    if not array:
        declared.append(
            f"static unsigned char weights[{upper}_WEIGHTS_BYTES + {upper}_ALIGNMENT];"
        )
        reads.append(f'read_file("{name}_weights.bin", align(weights), {upper}_WEIGHTS_BYTES)')
    given = "" if array else f"align(weights), {upper}_WEIGHTS_BYTES, "
    return _fill(
        "selftest.c",
        array,
        note=make_note(program, f"{name}: self-test."),
        name=name,
        NAME=upper,
        declared="\n".join(declared),
        reads="\n            || ".join(f"!{read}" for read in reads),
        members="\n".join(members),
        compares="\n".join(compares),
        again="\n            || ".join(again),
        given=given,
        tolerance=f"{TOLERANCE:g}",
    )
