# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Drives the scheduling engine with worker threads and the steady clock."""
