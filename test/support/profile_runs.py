"""`jetson-dnn-rt profile` as a script calls it, and the pictures it is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from jetson_dnn_rt.cli import main


def write_frames(folder: Path) -> str:
    """Three small pictures in a new folder; returns the source that reads them."""
    folder.mkdir()
    for index in range(3):
        cv2.imwrite(str(folder / f"{index}.png"), np.full((16, 24, 3), 60 * index, np.uint8))
    return f"images:{folder}"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    """Exit code, JSON of the only line, and stderr."""
    code = main.main(["profile", *arguments, "--json"])
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) <= 1
    return code, json.loads(lines[0]) if lines else None, captured.err
