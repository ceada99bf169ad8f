# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Benchmarks, one file or folder each, run in a checkout by `python -m benchmarks NAME`."""
