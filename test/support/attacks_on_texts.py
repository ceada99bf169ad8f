# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""YAML, JSON and lines of text: objects of Python, paths that lead out, terminal commands."""

from __future__ import annotations

import json
import os
from pathlib import Path

from attack_arena import Arena, Hostile, attack
from attacks_on_models import TERMINAL
from confined import Ending

# -- YAML --------------------------------------------------------------------------------------

_WHERE = {
    "params": "/**:\n  ros__parameters:\n    deadline_ms: {}\n",
    "labels": "names:\n  0: {}\n",
    "amp": "allow: {}\nfollow: []\ndeny: []\n",
    "calibration": "image_width: 4\nimage_height: 4\ncamera_matrix:\n  data: {}\n",
    "scenario": "board: tx2\ntasks:\n  - network: {}\n",
}
"""By the kind of file: where a value is read."""
_NAMES = {"labels": "labels.yaml", "params": "own.param.yaml"}


def _register_objects(kind: str) -> None:
    @attack(kind, "YAML: an object of Python")
    def lay(arena: Arena) -> Hostile:
        values = (
            f"!!python/object/apply:os.mkdir ['{arena.marker}']",
            f"!!python/object/new:os.mkdir ['{arena.marker}']",
            "!!python/object/apply:subprocess.check_call "
            f"[[mkdir, '{arena.marker}']]",
            f"!!python/object/apply:builtins.eval [\"__import__('os').mkdir('{arena.marker}')\"]",
        )  # fmt: skip
        text = _WHERE[kind].format(arena.rng.choice(values))
        path = arena.write(_NAMES.get(kind, f"{kind}.yaml"), text)
        return Hostile(os.fspath(path), f"import yaml\nyaml.unsafe_load({text!r})")


def _register_commands(kind: str) -> None:
    @attack(kind, "YAML: terminal commands")
    def lay(arena: Arena) -> Hostile:
        value = json.dumps(f"{TERMINAL}x")  # a text in quotes, as YAML has it
        text = _WHERE[kind].format(value) + f"{value}: {value}\n"
        path = arena.write(_NAMES.get(kind, f"{kind}.yaml"), text)
        return Hostile(os.fspath(path))


for _kind in _WHERE:
    _register_objects(_kind)
    if _kind != "labels":  # any text is a name
        _register_commands(_kind)


@attack("labels", "names with terminal commands")
def lay_labels(arena: Arena) -> Hostile:
    path = arena.write("labels.txt", f"{TERMINAL}\n" * arena.rng.choice([1, 2]))
    return Hostile(os.fspath(path))


@attack("scenario", "a board from elsewhere")
def lay_far_board(arena: Arena) -> Hostile:
    secret = arena.secret("precious.yaml")
    name = arena.rng.choice([
        f"../../{arena.outside.name}/precious", os.fspath(secret.with_suffix("")),
    ])  # fmt: skip
    path = arena.write("scenario.yaml", f"board: {name}\ntasks:\n  - {{network: alexnet}}\n")
    (arena.inside / "boards").mkdir()
    control = f"open({os.fspath(arena.inside)!r} + '/boards/../../elsewhere/precious.yaml')"
    return Hostile(os.fspath(path), control)


@attack("scenario", "a recording from elsewhere")
def lay_far_recording(arena: Arena) -> Hostile:
    secret = arena.secret("precious.parquet")
    name = arena.rng.choice([f"../{arena.outside.name}/{secret.name}", os.fspath(secret)])
    path = arena.write("scenario.yaml", f"recording: {{trace: {name}}}\n")
    control = f"import os\nopen(os.path.join({os.fspath(arena.inside)!r}, {name!r}))"
    return Hostile(os.fspath(path), control)


# -- JSON --------------------------------------------------------------------------------------


@attack("tables", "JSON: terminal commands")
def lay_tables(arena: Arena) -> Hostile:
    content = {"format": TERMINAL, TERMINAL: TERMINAL, "version": TERMINAL}
    if arena.rng.random() < 0.5:
        content["format"] = "jetson_dnn_rt tables"
    path = arena.write("tables.json", json.dumps(content, ensure_ascii=False))
    return Hostile(os.fspath(path))


@attack("tables", "a pickle for a table")
def lay_pickled_tables(arena: Arena) -> Hostile:
    import pickle

    from malice import Malicious

    data = pickle.dumps(Malicious(arena.marker))
    path = arena.write("tables.json", data)
    return Hostile(os.fspath(path), f"import pickle\npickle.loads({data!r})")


@attack("results", "terminal commands in names of tasks and classes")
def lay_results(arena: Arena) -> Hostile:
    box = {"class_id": 0, "label": TERMINAL, "score": 0.5, "xyxy": [0, 0, 4, 4]}
    lines = [
        {"task": TERMINAL, "frame": n, "outcome": "met", "variant": TERMINAL, "file": TERMINAL,
         "boxes": [box]}
        for n in range(3)
    ]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return Hostile(os.fspath(arena.write("results.jsonl", text)))


@attack("results", "a photo elsewhere")
def lay_far_photo(arena: Arena) -> Hostile:
    import cv2
    import numpy as np

    secret = arena.outside / "precious.png"
    cv2.imwrite(os.fspath(secret), np.full((48, 64, 3), 90, np.uint8))
    name = arena.rng.choice(
        [os.fspath(secret), f"../downloads/../{arena.outside.name}/precious.png"]
    )
    box = {"class_id": 0, "label": "car", "score": 0.5, "xyxy": [0, 0, 4, 4]}
    lines = [{"task": "detector", "frame": n, "file": name, "boxes": [box]} for n in range(2)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    control = f"import cv2, os\ncv2.imread(os.path.join({os.fspath(arena.inside)!r}, {name!r}))"
    return Hostile(os.fspath(arena.write("results.jsonl", text)), control)


@attack("truth", "labels that name files elsewhere")
def lay_truth(arena: Arena) -> Hostile:
    secret = arena.secret("precious.png")
    names = [f"../{arena.outside.name}/{secret.name}", os.fspath(secret), TERMINAL]
    content = {
        "images": [{"id": n, "file_name": name} for n, name in enumerate(names)],
        "annotations": [{"id": 1, "image_id": 0, "category_id": 1, "bbox": [0, 0, 4, 4]}],
        "categories": [{"id": 1, "name": TERMINAL}],
    }
    path = arena.write("truth.json", json.dumps(content))
    control = f"import os\nopen(os.path.join({os.fspath(arena.inside)!r}, {names[0]!r}))"
    return Hostile(os.fspath(path), control)


def forbid_in_files(pattern: str, *texts: str):  # type: ignore[no-untyped-def]
    """A check that no file that was written has one of some texts."""

    def check(folder: Path, ending: Ending) -> list[str]:
        return [
            f"{path.name} has {text!r}"
            for path in folder.rglob(pattern)
            for text in texts
            if text in path.read_text(errors="replace")
        ]

    return check
