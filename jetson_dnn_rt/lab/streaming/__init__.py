# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Streaming accuracy: results judged against the truth when they are available."""
