# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Entries of a library that tests store, spoil and look for."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jetson_dnn_rt.variants.library.library import EntryKey, Library

FILES = {"engine.plan": bytes(range(256)) * 40, "timing.cache": b"", "weights.safetensors": b"w"}
FACTS = {"build_ms": 12.5, "layers": [{"name": "stem", "ranks": [8, 16]}], "text": "ä", "no": None}


def make_key(**changes: Any) -> EntryKey:
    key = EntryKey(
        model_hash="a" * 64,
        graph_hash="b" * 64,
        decomposition="tucker-0.50",
        kind="artefact",
        backend="tensorrt",
        backend_version="8.5.3.1",
        device="NVIDIA Tegra Orin, 8.7",
        precision="fp16",
        shapes=((1, 3, 320, 512), (1, 8)),
        options="dla=0",
    )
    return dataclasses.replace(key, **changes)


def store(library: Library, **changes: Any) -> Path:
    """Store an entry of `FILES` and `FACTS` and return its folder."""
    entry = library.store(make_key(**changes), FILES, FACTS, model="builtin:detector")
    assert entry.path is not None
    return entry.path


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """Everything below a folder: names, contents, targets of links."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = os.fspath(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = "folder"
    return found


def seal(content: object) -> str:
    """A header of any content, with the hash that fits: what a clumsy program would write."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"schema": 1, "sha256": digest, "content": content})


def read_content(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "entry.json").read_text())["content"]


def reseal(folder: Path, content: object) -> None:
    (folder / "entry.json").write_text(seal(content))


def spoil(value: Any, draw: Callable[[int], int]) -> Any:
    """A copy of JSON with one place changed; `draw` chooses a number below another one."""
    parent: Any = {"": value}
    root, key = parent, ""
    while draw(4) and isinstance(parent[key], dict | list) and parent[key]:
        parent[key] = copy.copy(parent[key])
        parent = parent[key]
        keys = list(parent) if isinstance(parent, dict) else range(len(parent))
        key = keys[draw(len(keys))]
    change = draw(len(ODD) + 2)
    if change == len(ODD) and isinstance(parent, dict) and parent is not root:
        del parent[key]
    elif change == len(ODD) + 1 and isinstance(parent, dict) and parent is not root:
        parent[f"{key}\ud800"] = parent.pop(key)
    else:
        parent[key] = ODD[change % len(ODD)]
    return root[""]


def _nest(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1 << 62, 1 << 64, 10**400, 10**4200, 0.5, -0.0, 1e308, "", "x" * 100_000,
    "\ud800", "\x1b[2J", "a\nb", "../x", [], {}, [None], {"": None}, [[1 << 70]], _nest(900),
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-01T00:00:00+24:00",
    "2026-01-01T00:00:00", "2026-02-30T00:00:00+00:00",
)  # fmt: skip
"""What a program that is not ours, or a disk, may put in the place of a value."""
