# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Measured tables of times, clocks and interference for the coordinator."""
