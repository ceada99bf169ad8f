# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The horizon policy: plans the next frames of the whole cohort."""
