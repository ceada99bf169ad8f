"""The program that shows that the sources work: one input, the outputs that torch gives for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.tvm.export_c.expressions import SCALARS
from jetson_dnn_rt.tvm.export_c.program import Program
from jetson_dnn_rt.tvm.export_c.sources import make_note

if TYPE_CHECKING:
    from jetson_dnn_rt.models.model import Part

TOLERANCE = 1e-4
"""Of the largest value of an output: what the self-test allows between the C code and torch."""

_SEED = 7


def make_reference(
    part: Part,
) -> tuple[list[npt.NDArray[np.float32]], list[npt.NDArray[np.float32]]]:
    """Draw inputs, and let torch give their outputs, in float32.

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


def check_reference(
    program: Program, inputs: list[npt.NDArray[np.float32]], outputs: list[npt.NDArray[np.float32]]
) -> None:
    """See that torch's inputs and outputs are those of the program.

    Raises
    ------
    ModelError
        When the shapes differ.
    """
    for side, values, names in (
        ("inputs", inputs, program.network.inputs),
        ("outputs", outputs, program.network.outputs),
    ):
        wanted = [program.tensor(name).shape for name in names]
        found = [value.shape for value in values]
        if wanted != found:
            raise ModelError(f"{side} have the shapes {found} in torch, {wanted} in TVM")


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
    return _TEXT.format(
        note=make_note(program, f"{name}: self-test."),
        name=name,
        upper=upper,
        declared="\n".join(declared),
        reads="\n            || ".join(f"!{read}" for read in reads),
        members="\n".join(members),
        compares="\n".join(compares),
        again="\n            || ".join(again),
        given=given,
        tolerance=f"{TOLERANCE:g}",
    )


_TEXT = """\
{note}\
#define _POSIX_C_SOURCE 199309L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "{name}.h"

{declared}
static unsigned char arena[{upper}_ARENA_BYTES + {upper}_ALIGNMENT];
static const char *folder = ".";

static unsigned char *align(unsigned char *memory)
{{
    const size_t over = (uintptr_t)memory % {upper}_ALIGNMENT;
    return over == 0 ? memory : memory + ({upper}_ALIGNMENT - over);
}}

static int read_file(const char *file, void *memory, size_t bytes)
{{
    char path[4096];
    FILE *stream;
    size_t count;
    if (strlen(folder) + strlen(file) + 2 > sizeof path) {{
        fprintf(stderr, "%s: the name is too long\\n", folder);
        return 0;
    }}
    strcpy(path, folder);
    strcat(path, "/");
    strcat(path, file);
    stream = fopen(path, "rb");
    if (stream == NULL) {{
        fprintf(stderr, "%s: cannot be opened\\n", path);
        return 0;
    }}
    count = fread(memory, 1, bytes, stream);
    if (count != bytes || fgetc(stream) != EOF) {{
        fprintf(stderr, "%s: has another size\\n", path);
        fclose(stream);
        return 0;
    }}
    fclose(stream);
    return 1;
}}

/* Largest difference as a share of the largest value; 1 where that is above the tolerance. */
static int compare(int number, const float *found, const float *expected, size_t count)
{{
    double difference = 0.0, largest = 0.0;
    size_t i;
    for (i = 0; i < count; ++i) {{
        const double d = fabs((double)found[i] - (double)expected[i]);
        const double e = fabs((double)expected[i]);
        if (!(d <= difference)) {{ /* so that NaN is kept */
            difference = d;
        }}
        largest = e > largest ? e : largest;
    }}
    difference = largest > 0.0 ? difference / largest : difference;
    printf("output %d: largest difference %.3g of the largest value\\n", number, difference);
    return !(difference <= {tolerance});
}}

static double now_us(void)
{{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}}

static void print_times(const {name}_net *net, const {name}_io *io, long count)
{{
    static double least[{upper}_STEPS + 1u];
    double begin, first, spent;
    long i;
    unsigned step;
    for (i = 0; i < count; ++i) {{
        first = now_us();
        for (step = 0; step < {upper}_STEPS; ++step) {{
            begin = now_us();
            {name}_step(net, io, step);
            spent = now_us() - begin;
            least[step] = i == 0 || spent < least[step] ? spent : least[step];
        }}
        spent = now_us() - first;
        least[step] = i == 0 || spent < least[step] ? spent : least[step];
    }}
    for (step = 0; step < {upper}_STEPS; ++step) {{
        printf("step %u us %.3f %s\\n", step, least[step], {name}_step_name(step));
    }}
    printf("run us %.3f\\n", least[{upper}_STEPS]);
}}

int main(int argc, char **argv)
{{
    {name}_net net;
    {name}_io io;
    int state, bad = 0;
    const long count = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    if (argc > 1) {{
        folder = argv[1];
    }}
    if ({reads}) {{
        return 2;
    }}
{members}
    /* What is in the arena must not matter: these are NaN. */
    memset(arena, 0xff, sizeof arena);
    state = {name}_init(&net, {given}align(arena), {upper}_ARENA_BYTES);
    if (state == {upper}_OK) {{
        state = {name}_run(&net, &io);
    }}
    if (state != {upper}_OK) {{
        fprintf(stderr, "error %d\\n", state);
        return 2;
    }}
{compares}
    state = {name}_run(&net, &io);
    if (state != {upper}_OK || {again}) {{
        printf("the second run gives other bits\\n");
        bad = 1;
    }}
    if (count > 0) {{
        print_times(&net, &io, count);
    }}
    printf(bad ? "FAILED\\n" : "passed\\n");
    return bad;
}}
"""
