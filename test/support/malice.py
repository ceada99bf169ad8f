"""What a file from a stranger may hold."""

from __future__ import annotations

import os
from pathlib import Path


class Malicious:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)
