/* {{ model|comment }}: interface. Written by jetson-dnn-rt export-c: change the model, not this file. */
#ifndef {{ NAME }}_H
#define {{ NAME }}_H

#include <stddef.h>
#include <stdint.h>

/*
 * {{ model|comment }}
 *
 * {{ "Weights are compiled in." if array else "Weights are the file " ~ name ~ "_weights.bin." }} Nothing is allocated: the caller gives one arena. Nothing is static but constants, so
 * a program may run several of them at once, each with its own arena. A run has no branches that
 * depend on how memory is laid out, and gives the same bits for the same input.
 */

/* Bytes of the arena. No plan of these buffers needs less than {{ NAME }}_ARENA_BOUND_BYTES. */
#define {{ NAME }}_ARENA_BYTES {{ program.plan.arena_bytes }}u
#define {{ NAME }}_ARENA_BOUND_BYTES {{ program.plan.bound_bytes }}u
/* Bytes of local arrays, of the kernel with the most; compilers add spilled registers. */
#define {{ NAME }}_STACK_ARRAY_BYTES {{ program.stack_bytes }}u
/* Arena and weights begin at a multiple of it. */
#define {{ NAME }}_ALIGNMENT {{ alignment }}u
#define {{ NAME }}_WEIGHTS_BYTES {{ program.weight_blob|length }}u
/* CRC-32 (IEEE 802.3) of the weights. */
#define {{ NAME }}_WEIGHTS_CRC32 UINT32_C({{ program.weight_sum }})
/* Operators of one run, and the products of one run that are added to something. */
#define {{ NAME }}_STEPS {{ program.network.calls|length }}u
#define {{ NAME }}_MACS UINT64_C({{ program.macs }})
{% for tensor in inputs %}
#define {{ NAME }}_INPUT_{{ loop.index0 }}_ELEMENTS {{ tensor.elements }}u
{% endfor %}
{% for tensor in outputs %}
#define {{ NAME }}_OUTPUT_{{ loop.index0 }}_ELEMENTS {{ tensor.elements }}u
{% endfor %}

/* Return codes. */
enum {
    {{ NAME }}_OK = 0,
    {{ NAME }}_ERROR_NULL = 1,      /* a pointer is NULL */
    {{ NAME }}_ERROR_SIZE = 2,      /* wrong size of the arena or the weights */
    {{ NAME }}_ERROR_ALIGNMENT = 3, /* one of them is not aligned */
    {{ NAME }}_ERROR_WEIGHTS = 4,   /* other weights, or damaged, or a big-endian machine */
    {{ NAME }}_ERROR_STEP = 5       /* there is no such step */
};

/* The network, ready to run. The caller owns what it points to, and its members are private. */
typedef struct {{ name }}_net {
    const unsigned char *weights;
    unsigned char *arena;
} {{ name }}_net;

/* Inputs and outputs of a run, in C order; they must not overlap each other or the arena. */
typedef struct {{ name }}_io {
{% for tensor in inputs %}
    const {{ tensor.c_type }} *input_{{ loop.index0 }}; /* {{ tensor.c_type }} {{ tensor.shape|list }}: {{ tensor.name|comment }} */
{% endfor %}
{% for tensor in outputs %}
    {{ tensor.c_type }} *output_{{ loop.index0 }}; /* {{ tensor.c_type }} {{ tensor.shape|list }} */
{% endfor %}
} {{ name }}_io;

/* Make a network ready. The arena's content does not matter; it must not move while the
 * network is used{{ ", nor may the weights, which are checked" if not array }}. */
int {{ name }}_init({{ name }}_net *net, {{ "const void *weights, size_t weights_bytes, " if not array }}void *arena, size_t arena_bytes);

/* Run the network once. */
int {{ name }}_run(const {{ name }}_net *net, const {{ name }}_io *io);

/* Run one operator, 0 to {{ NAME }}_STEPS - 1. All of them in order are a run: for programs that stop
 * between operators, and to measure them. */
int {{ name }}_step(const {{ name }}_net *net, const {{ name }}_io *io, unsigned step);

/* Name of the C function of an operator; NULL where there is no such step. */
const char *{{ name }}_step_name(unsigned step);

#endif
