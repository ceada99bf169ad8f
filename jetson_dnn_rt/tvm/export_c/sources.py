"""The C files around the kernels, and the files that build them."""

from __future__ import annotations

import math
import re

from jetson_dnn_rt.tvm.export_c.expressions import SCALARS, format_number
from jetson_dnn_rt.tvm.export_c.kernels import ALIGNMENT
from jetson_dnn_rt.tvm.export_c.network import Tensor
from jetson_dnn_rt.tvm.export_c.planner import round_up
from jetson_dnn_rt.tvm.export_c.program import Program
from jetson_dnn_rt.tvm.target import TvmTarget

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
    init = "" if array else "const void *weights, size_t weights_bytes, "
    body = f"""\
#include <stddef.h>
#include <stdint.h>

/*
 * {model}
 *
 * {weights} Nothing is allocated: the caller gives one arena. Nothing is static but constants, so
 * a program may run several of them at once, each with its own arena. A run has no branches that
 * depend on how memory is laid out, and gives the same bits for the same input.
 */

/* Bytes of the arena. No plan of these buffers needs less than {upper}_ARENA_BOUND_BYTES. */
#define {upper}_ARENA_BYTES {program.plan.arena_bytes}u
#define {upper}_ARENA_BOUND_BYTES {program.plan.bound_bytes}u
/* Bytes of local arrays of the kernel that has the most; compilers add spilled registers. */
#define {upper}_STACK_ARRAY_BYTES {program.stack_bytes}u
/* Arena and weights begin at a multiple of it. */
#define {upper}_ALIGNMENT {ALIGNMENT}u
#define {upper}_WEIGHTS_BYTES {len(program.weight_blob)}u
/* CRC-32 (IEEE 802.3) of the weights. */
#define {upper}_WEIGHTS_CRC32 UINT32_C({program.weight_sum})
/* Operators of one run, and the products of one run that are added to something. */
#define {upper}_STEPS {len(program.network.calls)}u
#define {upper}_MACS UINT64_C({program.macs})
{chr(10).join(sizes)}

/* What functions return. */
enum {{
    {upper}_OK = 0,
    {upper}_ERROR_NULL = 1,      /* a pointer is NULL */
    {upper}_ERROR_SIZE = 2,      /* the arena or the weights have another size */
    {upper}_ERROR_ALIGNMENT = 3, /* one of them is not aligned */
    {upper}_ERROR_WEIGHTS = 4,   /* other weights, or damaged, or a big-endian machine */
    {upper}_ERROR_STEP = 5       /* there is no such step */
}};

/* The network, ready to run. The caller owns what it points to, and its members are private. */
typedef struct {name}_net {{
    const unsigned char *weights;
    unsigned char *arena;
}} {name}_net;

/* Inputs and outputs of a run, in C order; they must not overlap each other or the arena. */
typedef struct {name}_io {{
{chr(10).join(members)}
}} {name}_io;

/* Make a network ready. The arena's content does not matter; it must hold still as long as the
 * network is used{"" if array else ", and so must the weights, which are checked"}. */
int {name}_init({name}_net *net, {init}void *arena, size_t arena_bytes);

/* Run the network once. */
int {name}_run(const {name}_net *net, const {name}_io *io);

/* Run one operator, 0 to {upper}_STEPS - 1. All of them in order are a run: for programs that stop
 * between operators, and to measure them. */
int {name}_step(const {name}_net *net, const {name}_io *io, unsigned step);

/* Name of the C function of an operator; NULL where there is no such step. */
const char *{name}_step_name(unsigned step);
"""
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
    arguments = "" if array else "const void *weights, size_t weights_bytes, "
    checks = "" if array else _WEIGHT_CHECKS.replace("NAME", upper)
    unused = "    (void)net;\n" if not any("net->" in case for case in (*cases, *extra)) else ""
    return f"""\
{make_note(program, f"{name}: the operators in order.")}\
#include "{name}.h"

#include <string.h>

#include "{name}_kernels.h"
{f'#include "{name}_weights.h"' if array else ""}

#define WEIGHT(type, offset) ((const type *)(const void *)(net->weights + (offset)))
#define VALUE(type, offset) ((type *)(void *)(net->arena + (offset)))

static const char *const step_names[] = {{
{chr(10).join(names)}
}};
{"" if array else _CRC}
int {name}_init({name}_net *net, {arguments}void *arena, size_t arena_bytes)
{{
    if (net == NULL || arena == NULL{"" if array else " || weights == NULL"}) {{
        return {upper}_ERROR_NULL;
    }}
    if (arena_bytes < {upper}_ARENA_BYTES) {{
        return {upper}_ERROR_SIZE;
    }}
    if ((uintptr_t)arena % {upper}_ALIGNMENT != 0) {{
        return {upper}_ERROR_ALIGNMENT;
    }}
{checks}\
    net->weights = {"NULL" if array else "(const unsigned char *)weights"};
    net->arena = (unsigned char *)arena;
    return {upper}_OK;
}}

static void run_step(const {name}_net *net, const {name}_io *io, unsigned step)
{{
{unused}\
    switch (step) {{
{chr(10).join(cases)}
    default:
        break;
    }}
{_copy_block(program, extra)}\
}}

int {name}_step(const {name}_net *net, const {name}_io *io, unsigned step)
{{
    if (net == NULL || io == NULL || net->arena == NULL) {{
        return {upper}_ERROR_NULL;
    }}
    if ({" || ".join(pointers)}) {{
        return {upper}_ERROR_NULL;
    }}
    if (step >= {upper}_STEPS) {{
        return {upper}_ERROR_STEP;
    }}
    run_step(net, io, step);
    return {upper}_OK;
}}

int {name}_run(const {name}_net *net, const {name}_io *io)
{{
    int state = {upper}_OK;
    unsigned step;
    for (step = 0; step < {upper}_STEPS && state == {upper}_OK; ++step) {{
        state = {name}_step(net, io, step);
    }}
    return state;
}}

const char *{name}_step_name(unsigned step)
{{
    return step < {upper}_STEPS ? step_names[step] : NULL;
}}
"""


_WEIGHT_CHECKS = """\
    if (weights_bytes != NAME_WEIGHTS_BYTES) {
        return NAME_ERROR_SIZE;
    }
    if ((uintptr_t)weights % NAME_ALIGNMENT != 0) {
        return NAME_ERROR_ALIGNMENT;
    }
    {
        /* The bytes are little-endian, and kernels read them as they are. */
        const uint32_t one = 1;
        unsigned char first;
        memcpy(&first, &one, 1);
        if (first != 1 || sum_bytes((const unsigned char *)weights, weights_bytes)
                != NAME_WEIGHTS_CRC32) {
            return NAME_ERROR_WEIGHTS;
        }
    }
"""

_CRC = """
/* CRC-32 (IEEE 802.3), four bits at a time. */
static uint32_t sum_bytes(const unsigned char *bytes, size_t count)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
        0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
        0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    uint32_t sum = 0xffffffffu;
    size_t i;
    for (i = 0; i < count; ++i) {
        sum ^= bytes[i];
        sum = (sum >> 4) ^ table[sum & 15u];
        sum = (sum >> 4) ^ table[sum & 15u];
    }
    return ~sum;
}
"""


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


def write_makefile(name: str, flag: str, *, array: bool) -> str:
    """``Makefile``: library, self-test, ``make test``."""
    weights = f" {name}_weights.o" if array else ""
    return f"""\
# Written by jetson-dnn-rt export-c.
#   make                      {name}_selftest and lib{name}.a
#   make test                 runs the self-test
#   make KERNELS=iso          kernels without vectors of GNU C, for other compilers; slower
#   make CC=aarch64-linux-gnu-gcc ARCH=-mcpu=cortex-a78ae
CC = gcc
AR = ar
ARCH = {flag}
KERNELS = gnu
OPT = -O3
CFLAGS = -std=c99 -Wall -Wextra -Werror $(OPT) $(ARCH) -ffp-contract=fast $(CFLAGS_EXTRA)

SUFFIX_gnu = _gnu
OBJECTS = {name}.o {name}_kernels$(SUFFIX_$(KERNELS)).o{weights}

all: lib{name}.a {name}_selftest

lib{name}.a: $(OBJECTS)
	rm -f $@
	$(AR) rcs $@ $(OBJECTS)

{name}_selftest: {name}_selftest.o lib{name}.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ {name}_selftest.o lib{name}.a -lm

%.o: %.c {name}.h {name}_kernels.h Makefile
	$(CC) $(CFLAGS) -c -o $@ $<

test: {name}_selftest
	./{name}_selftest .

clean:
	rm -f *.o lib{name}.a {name}_selftest

.PHONY: all test clean
"""


def write_cmake(name: str, flag: str, *, array: bool) -> str:
    """``CMakeLists.txt``: the same."""
    weights = f" {name}_weights.c" if array else ""
    return f"""\
# Written by jetson-dnn-rt export-c.
cmake_minimum_required(VERSION 3.10)
project({name} C)

set(ARCH "{flag}" CACHE STRING "what tells the compiler about the processor")
set(KERNELS "gnu" CACHE STRING "gnu: with vectors of GNU C; iso: plain C99, slower")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
if(KERNELS STREQUAL "gnu")
  set(kernels {name}_kernels_gnu.c)
else()
  set(kernels {name}_kernels.c)
endif()

add_library({name} STATIC {name}.c ${{kernels}}{weights})
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_compile_options({name} PRIVATE -Wall -Wextra -Werror -ffp-contract=fast ${{ARCH}})
target_link_libraries({name} PUBLIC m)

add_executable({name}_selftest {name}_selftest.c)
target_compile_options({name}_selftest PRIVATE -Wall -Wextra -Werror)
target_link_libraries({name}_selftest {name})

enable_testing()
add_test(NAME {name}_selftest COMMAND {name}_selftest ${{CMAKE_CURRENT_SOURCE_DIR}})
"""
