# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Networks as graphs: tracing, folding, splitting into stages, mixed precision."""
