# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The input of a network: encodings of frames, preprocessing, the pass that fills it."""
