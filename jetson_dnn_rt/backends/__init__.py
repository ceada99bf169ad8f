# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""torch, ONNX Runtime, OpenVINO, TensorRT and null behind one interface, imported on use."""
