"""Entry point of `python -m benchmarks NAME`, in a checkout."""

import sys

from benchmarks.harness.main import main

sys.exit(main())
