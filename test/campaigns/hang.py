# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A stage that hangs for ever, beside a task that must not notice: threads, memory, met frames.

``python test/campaigns/hang.py --minutes 5``; the last line is JSON. Two tasks with a small
network each share two workers, in real time. For a fifth of the time both work; then every frame
of the victim hangs in its network's stage. Afterwards the hung stages are let go: their threads
have to end, and their networks to be closed. Exit 1 when a limit is broken.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    minutes = parser.parse_args().minutes
    from hanging_stage import list_broken, run

    figures = run(minutes)
    broken = list_broken(figures)
    print(json.dumps({**figures, "broken": broken}))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
