/* {{ name }}: self-test. Written by jetson-dnn-rt export-c: change the model, not this file. */
#define _POSIX_C_SOURCE 199309L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "{{ name }}.h"

{% for tensor in inputs %}
static {{ tensor.c_type }} input_{{ loop.index0 }}[{{ NAME }}_INPUT_{{ loop.index0 }}_ELEMENTS];
{% endfor %}
{% for tensor in outputs %}
static {{ tensor.c_type }} output_{{ loop.index0 }}[{{ NAME }}_OUTPUT_{{ loop.index0 }}_ELEMENTS];
static {{ tensor.c_type }} first_{{ loop.index0 }}[{{ NAME }}_OUTPUT_{{ loop.index0 }}_ELEMENTS];
static {{ tensor.c_type }} expected_{{ loop.index0 }}[{{ NAME }}_OUTPUT_{{ loop.index0 }}_ELEMENTS];
{% endfor %}
{% if not array %}
static unsigned char weights[{{ NAME }}_WEIGHTS_BYTES + {{ NAME }}_ALIGNMENT];
{% endif %}
static unsigned char arena[{{ NAME }}_ARENA_BYTES + {{ NAME }}_ALIGNMENT];
static const char *folder = ".";

static unsigned char *align(unsigned char *memory)
{
    const size_t over = (uintptr_t)memory % {{ NAME }}_ALIGNMENT;
    return over == 0 ? memory : memory + ({{ NAME }}_ALIGNMENT - over);
}

static int read_file(const char *file, void *memory, size_t bytes)
{
    char path[4096];
    FILE *stream;
    size_t count;
    if (strlen(folder) + strlen(file) + 2 > sizeof path) {
        fprintf(stderr, "%s: the name is too long\n", folder);
        return 0;
    }
    strcpy(path, folder);
    strcat(path, "/");
    strcat(path, file);
    stream = fopen(path, "rb");
    if (stream == NULL) {
        fprintf(stderr, "%s: cannot be opened\n", path);
        return 0;
    }
    count = fread(memory, 1, bytes, stream);
    if (count != bytes || fgetc(stream) != EOF) {
        fprintf(stderr, "%s: has another size\n", path);
        fclose(stream);
        return 0;
    }
    fclose(stream);
    return 1;
}

/* Largest difference as a share of the largest value; 1 where that is above the tolerance. */
static int compare(int number, const float *found, const float *expected, size_t count)
{
    double difference = 0.0, largest = 0.0;
    size_t i;
    for (i = 0; i < count; ++i) {
        const double d = fabs((double)found[i] - (double)expected[i]);
        const double e = fabs((double)expected[i]);
        if (!(d <= difference)) { /* so that NaN is kept */
            difference = d;
        }
        largest = e > largest ? e : largest;
    }
    difference = largest > 0.0 ? difference / largest : difference;
    printf("output %d: largest difference %.3g of the largest value\n", number, difference);
    return !(difference <= {{ tolerance }});
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void print_times(const {{ name }}_net *net, const {{ name }}_io *io, long count)
{
    static double least[{{ NAME }}_STEPS + 1u];
    double begin, first, spent;
    long i;
    unsigned step;
    for (i = 0; i < count; ++i) {
        first = now_us();
        for (step = 0; step < {{ NAME }}_STEPS; ++step) {
            begin = now_us();
            {{ name }}_step(net, io, step);
            spent = now_us() - begin;
            least[step] = i == 0 || spent < least[step] ? spent : least[step];
        }
        spent = now_us() - first;
        least[step] = i == 0 || spent < least[step] ? spent : least[step];
    }
    for (step = 0; step < {{ NAME }}_STEPS; ++step) {
        printf("step %u us %.3f %s\n", step, least[step], {{ name }}_step_name(step));
    }
    printf("run us %.3f\n", least[{{ NAME }}_STEPS]);
}

int main(int argc, char **argv)
{
    {{ name }}_net net;
    {{ name }}_io io;
    int state, same, bad = 0;
    const long count = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    if (argc > 1) {
        folder = argv[1];
    }
{% for tensor in inputs %}
    bad |= !read_file("{{ name }}_input_{{ loop.index0 }}.bin", input_{{ loop.index0 }}, sizeof input_{{ loop.index0 }});
    io.input_{{ loop.index0 }} = input_{{ loop.index0 }};
{% endfor %}
{% for tensor in outputs %}
    bad |= !read_file("{{ name }}_output_{{ loop.index0 }}.bin", expected_{{ loop.index0 }}, sizeof expected_{{ loop.index0 }});
    io.output_{{ loop.index0 }} = output_{{ loop.index0 }};
{% endfor %}
{% if not array %}
    bad |= !read_file("{{ name }}_weights.bin", align(weights), {{ NAME }}_WEIGHTS_BYTES);
{% endif %}
    if (bad) {
        return 2;
    }
    /* What is in the arena must not matter: these are NaN. */
    memset(arena, 0xff, sizeof arena);
    state = {{ name }}_init(&net, {{ "align(weights), " ~ NAME ~ "_WEIGHTS_BYTES, " if not array }}align(arena), {{ NAME }}_ARENA_BYTES);
    if (state == {{ NAME }}_OK) {
        state = {{ name }}_run(&net, &io);
    }
    if (state != {{ NAME }}_OK) {
        fprintf(stderr, "error %d\n", state);
        return 2;
    }
{% for tensor in outputs %}
    bad |= compare({{ loop.index0 }}, output_{{ loop.index0 }}, expected_{{ loop.index0 }}, {{ NAME }}_OUTPUT_{{ loop.index0 }}_ELEMENTS);
    memcpy(first_{{ loop.index0 }}, output_{{ loop.index0 }}, sizeof first_{{ loop.index0 }});
{% endfor %}
    same = {{ name }}_run(&net, &io) == {{ NAME }}_OK;
{% for tensor in outputs %}
    same &= memcmp(first_{{ loop.index0 }}, output_{{ loop.index0 }}, sizeof first_{{ loop.index0 }}) == 0;
{% endfor %}
    if (!same) {
        printf("the second run gives other bits\n");
        bad = 1;
    }
    if (count > 0) {
        print_times(&net, &io, count);
    }
    printf(bad ? "FAILED\n" : "passed\n");
    return bad;
}
