/* {{ name }}: kernels {{ "with vectors of GNU C" if lanes is not none else "in ISO C99" }}, from schedules of TVM. Written by jetson-dnn-rt export-c: change the model, not this file. */
#include "{{ name }}_kernels.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
{% for word, sign in (("max", ">"), ("min", "<")) %}
{% for scalar, kind in (("float32", "float"), ("float64", "double"), ("int32", "int32_t"), ("int64", "int64_t")) %}
{# clang warns of a function that nobody calls. #}
{% if word ~ "_" ~ scalar ~ "(" in kernels %}

static inline {{ kind }} {{ word }}_{{ scalar }}({{ kind }} a, {{ kind }} b)
{
    return a {{ sign }} b ? a : b;
}
{% endif %}
{% endfor %}
{% endfor %}
{% if lanes is not none %}

/* Vectors of GNU C, aligned as floats are. They may alias them. */
#define V_SELECT(type, a, b, sign) __extension__ ({ \
    const type a_ = (a), b_ = (b); \
    const __typeof__(a_ > b_) mask_ = a_ sign b_; \
    (type)((mask_ & (__typeof__(mask_))a_) | (~mask_ & (__typeof__(mask_))b_)); })
#define V_MAX(type, a, b) V_SELECT(type, a, b, >)
#define V_MIN(type, a, b) V_SELECT(type, a, b, <)
{% for width in lanes %}
typedef float v{{ width }} __attribute__((vector_size({{ 4 * width }}), aligned(4), may_alias));
{% endfor %}
{% endif %}

{{ kernels -}}
