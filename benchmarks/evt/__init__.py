# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bounds of the worst case: laws that they were developed with, and laws held out."""
