/* {{ name }}: kernels. Written by jetson-dnn-rt export-c: change the model, not this file. */
#ifndef {{ NAME }}_KERNELS_H
#define {{ NAME }}_KERNELS_H

#include <stdint.h>

{% for kernel in program.kernels.values() %}
/* {{ kernel.macs }} multiply-accumulates, {{ kernel.operations }} operations on floats; work space {{ kernel.workspace_bytes }} bytes. */
{{ kernel.head }};

{% endfor %}
#endif
