# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Where frames come from: synthetic drives, videos, folders of images, devices, GStreamer."""
