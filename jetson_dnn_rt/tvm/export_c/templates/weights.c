/* {{ name }}: weights. Written by jetson-dnn-rt export-c: change the model, not this file. */
#include "{{ name }}_weights.h"

#include <math.h>
{% for head, values in weights %}

{{ head }} = {
{{ values }}
};
{% endfor %}
