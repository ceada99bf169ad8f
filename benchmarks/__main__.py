"""`python -m benchmarks NAME`, in a checkout."""

import sys

from benchmarks.harness import main

sys.exit(main())
