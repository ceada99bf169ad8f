# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Moves: what may be done differently from the base policy."""

from jetson_dnn_rt.compiled import use_compiled

use_compiled(__name__, __path__)
