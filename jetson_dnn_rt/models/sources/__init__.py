# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Sources of networks: built-in, ONNX, torchvision, exported programs, null."""
