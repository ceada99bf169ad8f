# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A ROS process: start, spin, lifecycle, parameters, end."""
