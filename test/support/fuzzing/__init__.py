# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Fuzzing of every file format that the package reads, and of its images' messages.

A format is one class with sound inputs, a way to spoil them and the package's own reader, and one
line in `formats.FORMATS`. `batches` runs a format in child processes (`child`) whose time, memory
and reach (`watch`) are observed.
"""
