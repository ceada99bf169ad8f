# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Whether a file is whole, by its kind: what a command says it has written can be read."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

MCAP_END = b"\x89MCAP0\r\n"


def find_damage(file: Path, like: Path) -> str:
    """What is wrong with a file, beside the one of the same command on a sound disk."""
    if not file.stat().st_size and like.stat().st_size:
        return "empty"
    try:
        return _CHECKS.get(file.suffix, _check_size)(file, like)
    except Exception as error:  # whatever its reader raises
        return f"{type(error).__name__}: {error}"


def _check_size(file: Path, like: Path) -> str:
    size, wanted = file.stat().st_size, like.stat().st_size
    return "" if size >= 0.9 * wanted else f"{size} bytes, {wanted} on a sound disk"


def _check_json(file: Path, like: Path) -> str:
    json.loads(file.read_bytes())
    return ""


def _check_packed_json(file: Path, like: Path) -> str:
    json.loads(gzip.decompress(file.read_bytes()))
    return ""


def _check_lines(file: Path, like: Path) -> str:
    return _compare(*([json.loads(line) for line in one.open("rb")] for one in (file, like)))


def _check_csv(file: Path, like: Path) -> str:
    return _compare(*(list(csv.reader(one.open(newline=""))) for one in (file, like)))


def _compare(found: list[object], wanted: list[object]) -> str:
    same = len(found) == len(wanted)
    return "" if same else f"{len(found)} rows, {len(wanted)} on a sound disk"


def _check_picture(file: Path, like: Path) -> str:
    import cv2

    return "" if cv2.imread(str(file)) is not None else "no picture"


def _check_video(file: Path, like: Path) -> str:
    import cv2

    counts = [cv2.VideoCapture(str(one)).get(cv2.CAP_PROP_FRAME_COUNT) for one in (file, like)]
    return "" if counts[0] > 0 else f"{counts[0]:g} frames, {counts[1]:g} on a sound disk"


def _check_trace(file: Path, like: Path) -> str:
    from pyarrow import parquet

    rows, wanted = (parquet.read_table(one).num_rows for one in (file, like))
    return "" if rows == wanted else f"{rows} jobs, {wanted} on a sound disk"


def _check_workbook(file: Path, like: Path) -> str:
    return zipfile.ZipFile(file).testzip() or ""


def _check_tar(file: Path, like: Path) -> str:
    with tarfile.open(file) as found, tarfile.open(like) as wanted:
        names, expected = found.getnames(), wanted.getnames()
    return "" if names == expected else f"{names}, {expected} on a sound disk"


def _check_database(file: Path, like: Path) -> str:
    ((found,),) = sqlite3.connect(file).execute("PRAGMA integrity_check").fetchall()
    counts = [
        sqlite3.connect(one).execute("SELECT count(*) FROM messages").fetchone()[0]
        for one in (file, like)
    ]
    return "" if found == "ok" and counts[0] == counts[1] else f"{found}, {counts[0]} messages"


def _check_mcap(file: Path, like: Path) -> str:
    return "" if file.read_bytes().endswith(MCAP_END) else "without its end"


def _check_page(file: Path, like: Path) -> str:
    return "" if file.read_text("utf-8").rstrip().endswith("</html>") else "without its end"


_CHECKS: dict[str, Callable[[Path, Path], str]] = {
    ".json": _check_json,
    ".gz": _check_packed_json,
    ".jsonl": _check_lines,
    ".csv": _check_csv,
    ".png": _check_picture,
    ".mp4": _check_video,
    ".parquet": _check_trace,
    ".xlsx": _check_workbook,
    ".tar": _check_tar,
    ".db3": _check_database,
    ".mcap": _check_mcap,
    ".html": _check_page,
}
