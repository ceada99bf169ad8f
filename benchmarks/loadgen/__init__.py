# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Queries of MLPerf Automotive's LoadGen, through the camera's topic and those of results."""
