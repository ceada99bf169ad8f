# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A folder whose files bear the names of modules, each of which tells when it is run."""

from __future__ import annotations

import sys
from pathlib import Path

OTHERS = ("cv2", "distributed", "fleet_work", "numpy", "onnxruntime", "psutil", "sitecustomize")
OTHERS += ("torch", "usercustomize", "yaml", "rclpy", "jetson_dnn_rt")


def lay_traps(folder: Path, marker: Path | None = None) -> Path:
    """Fill a folder with modules of every name that a child could import; returns their marker.

    The marker is a file, which is there once one of them was run; it holds their names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    marker = marker or folder.parent / "trapped"
    for name in (*sorted(sys.stdlib_module_names), *OTHERS):
        text = f"with open({str(marker)!r}, 'a') as file: file.write('{name} ')\n"
        (folder / f"{name}.py").write_text(text)
    return marker
