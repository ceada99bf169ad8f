# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""C99 sources of networks: kernels scheduled by TVM and a driver, without a runtime."""
