# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Profile tables: times, energy and accuracy of variants and clocks."""
