# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Policies at equal objectives, in scenarios that nothing was tuned on."""
