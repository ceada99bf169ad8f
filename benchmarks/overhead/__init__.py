# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Overhead of the package on a frame, composed and between processes."""
