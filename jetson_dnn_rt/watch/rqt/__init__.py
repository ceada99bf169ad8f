# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Plots for rqt: of deadlines, and rqt_plot with topics that come later."""
