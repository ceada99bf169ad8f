# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A detector is sent malicious JPEG, PNG and `Image` messages, with a good one behind each.

``python test/campaigns/image_fuzz.py --jpeg 2000 --image 2000 --seed 1``; the last line is JSON.
Exit 1 when the process ends, a good image is not answered, an image is not counted, or the memory
grows by more than three of the largest pictures.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from conftest import prepare_ros_environment


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jpeg", type=int, default=2000, help="JPEG and PNG files")
    parser.add_argument("--image", type=int, default=2000, help="raw images")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    prepare_ros_environment()  # which rclpy reads when it is loaded

    from image_storm import storm_detector
    from ros_graph import Ros

    results: dict[str, object] = {"seed": options.seed}
    faults: list[str] = []
    ros = Ros()
    try:
        for transport, count in (("compressed", options.jpeg), ("raw", options.image)):
            result = storm_detector(ros, transport, count, options.seed)
            faults += [f"{transport}: {fault}" for fault in result.faults]
            results[transport] = {
                "sent": result.sent, "good": result.good, "answered": result.answered,
                "outcomes": result.outcomes, "reasons": result.reasons, "exit": result.code,
                "base_mib": result.base_mib, "peak_mib": result.peak_mib,
                "slowest_s": round(result.slowest_s, 3), "log_lines": len(result.lines),
            }  # fmt: skip
    finally:
        ros.close()
    print(json.dumps({**results, "faults": faults}))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
