/* {{ name }}: weights. Written by jetson-dnn-rt export-c: change the model, not this file. */
#ifndef {{ NAME }}_WEIGHTS_H
#define {{ NAME }}_WEIGHTS_H

#include <stdint.h>

{% for head, values in weights %}
extern {{ head }};
{% endfor %}

#endif
