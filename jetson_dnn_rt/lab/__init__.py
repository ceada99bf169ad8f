# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The desk: compressing, profiling, evaluating, simulating, statistics and reports."""
