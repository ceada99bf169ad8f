# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Decides variants and clocks of all tasks together (NeuOS and its rivals)."""

from jetson_dnn_rt.compiled import use_compiled

use_compiled(__name__, __path__)
