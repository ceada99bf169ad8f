# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Harness of all benchmarks: options, machine, rounds in turn, tables, processes, tasks."""
