# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""CUDA without a deep-learning library: driver, memory, streams, the input kernel."""
