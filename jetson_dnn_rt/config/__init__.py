# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""User settings as frozen dataclasses: the only place of their defaults, units and ranges."""
