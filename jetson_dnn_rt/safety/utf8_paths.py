# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Names of files for libraries in C, which take UTF-8 only.

A name on Linux is bytes: one from an archive of another system may be no UTF-8. Python keeps it in
a text with surrogates. OpenCV crashes at such a text, others raise a UnicodeEncodeError.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def is_utf8(text: str) -> bool:
    """Whether a text can be handed to a library that takes UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escape(text: str) -> str:
    """A text as UTF-8, with an escape such as ``udcff`` behind a backslash for other bytes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


@contextlib.contextmanager
def utf8_name(path: str | os.PathLike[str]) -> Iterator[str]:
    """A name by which a library can open a file, or create it, meanwhile: its own, or a link's.

    The link is in the folder of temporary files, and ends as the file does.
    """
    name = os.path.abspath(path)
    if is_utf8(name):
        yield name
        return
    with tempfile.TemporaryDirectory(prefix="jetson_dnn_rt_name_") as folder:
        suffix = Path(name).suffix
        link = os.path.join(folder, "file" + (suffix if suffix.isascii() else ""))
        os.symlink(name, link)
        yield link
