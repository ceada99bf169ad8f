/* {{ name }}: the operators in order. Written by jetson-dnn-rt export-c: change the model, not this file. */
#include "{{ name }}.h"

#include <string.h>

#include "{{ name }}_kernels.h"
{{ '#include "' ~ name ~ '_weights.h"' if array }}

#define WEIGHT(type, offset) ((const type *)(const void *)(net->weights + (offset)))
#define VALUE(type, offset) ((type *)(void *)(net->arena + (offset)))

static const char *const step_names[] = {
{% for kernel, places in steps %}
    "{{ name }}_{{ kernel }}",
{% endfor %}
};
{% if not array %}

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
{% endif %}

int {{ name }}_init({{ name }}_net *net, {{ "const void *weights, size_t weights_bytes, " if not array }}void *arena, size_t arena_bytes)
{
    if (net == NULL || arena == NULL{{ " || weights == NULL" if not array }}) {
        return {{ NAME }}_ERROR_NULL;
    }
{% if program.plan.arena_bytes %}
    if (arena_bytes < {{ NAME }}_ARENA_BYTES) {
        return {{ NAME }}_ERROR_SIZE;
    }
{% else %}
    (void)arena_bytes;
{% endif %}
    if ((uintptr_t)arena % {{ NAME }}_ALIGNMENT != 0) {
        return {{ NAME }}_ERROR_ALIGNMENT;
    }
{% if not array %}
    if (weights_bytes != {{ NAME }}_WEIGHTS_BYTES) {
        return {{ NAME }}_ERROR_SIZE;
    }
    if ((uintptr_t)weights % {{ NAME }}_ALIGNMENT != 0) {
        return {{ NAME }}_ERROR_ALIGNMENT;
    }
    {
        /* The bytes are little-endian, and kernels read them as they are. */
        const uint32_t one = 1;
        unsigned char first;
        memcpy(&first, &one, 1);
        if (first != 1 || sum_bytes((const unsigned char *)weights, weights_bytes)
                != {{ NAME }}_WEIGHTS_CRC32) {
            return {{ NAME }}_ERROR_WEIGHTS;
        }
    }
{% endif %}
    net->weights = {{ "NULL" if array else "(const unsigned char *)weights" }};
    net->arena = (unsigned char *)arena;
    return {{ NAME }}_OK;
}

static void run_step(const {{ name }}_net *net, const {{ name }}_io *io, unsigned step)
{
    (void)net;
    switch (step) {
{% for kernel, places in steps %}
    case {{ loop.index0 }}:
        {{ name }}_{{ kernel }}(
            {{ places|join(",\n            ") }});
        break;
{% endfor %}
    default:
        break;
    }
{% if copies %}
    if (step == {{ NAME }}_STEPS - 1) {
{% for copy in copies %}
        {{ copy }}
{% endfor %}
    }
{% endif %}
}

int {{ name }}_step(const {{ name }}_net *net, const {{ name }}_io *io, unsigned step)
{
    if (net == NULL || io == NULL || net->arena == NULL) {
        return {{ NAME }}_ERROR_NULL;
    }
{% for side, tensors in (("input", inputs), ("output", outputs)) %}
{% for tensor in tensors %}
    if (io->{{ side }}_{{ loop.index0 }} == NULL) {
        return {{ NAME }}_ERROR_NULL;
    }
{% endfor %}
{% endfor %}
    if (step >= {{ NAME }}_STEPS) {
        return {{ NAME }}_ERROR_STEP;
    }
    run_step(net, io, step);
    return {{ NAME }}_OK;
}

int {{ name }}_run(const {{ name }}_net *net, const {{ name }}_io *io)
{
    int state = {{ NAME }}_OK;
    unsigned step;
    for (step = 0; step < {{ NAME }}_STEPS && state == {{ NAME }}_OK; ++step) {
        state = {{ name }}_step(net, io, step);
    }
    return state;
}

const char *{{ name }}_step_name(unsigned step)
{
    return step < {{ NAME }}_STEPS ? step_names[step] : NULL;
}
