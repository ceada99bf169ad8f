# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Entries of a library that tests store, spoil and look for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
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
