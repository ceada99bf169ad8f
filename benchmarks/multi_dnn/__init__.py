# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Many DNNs at once: processes, a paper's queue, and this package."""
