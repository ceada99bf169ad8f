# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Images in rosbags: MCAP, SQLite and ROS 1, damaged ones too."""
