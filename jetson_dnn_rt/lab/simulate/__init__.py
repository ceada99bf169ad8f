# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The scheduling engine and the coordinator under a virtual clock, in a modelled world."""
