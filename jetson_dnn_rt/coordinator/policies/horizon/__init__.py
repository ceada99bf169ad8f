# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The horizon policy: plans the next frames of the whole cohort."""

from jetson_dnn_rt.compiled import use_compiled

use_compiled(__name__, __path__)
