# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Entry point of `python -m benchmarks NAME`, in a checkout."""

import sys

from benchmarks.harness.main import main

sys.exit(main())
