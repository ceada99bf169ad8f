# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Replay of bags: no frame lost, in one process, at recorded times, simulated, or on a fleet."""
