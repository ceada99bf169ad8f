# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Files of JSON and YAML: tables, parameters, labels, ground truth, scenarios, results."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hostile_yaml
import numpy as np
import yaml
from cohort_tables import make_clocks, make_table, write_clock_tables, write_tables

from fuzzing.formats import Files, Format
from fuzzing.mutations import TEXTS, TRAP, spoil_bytes, spoil_text, spoil_tree
from jetson_dnn_rt.config.parameter_file import read_parameter_file
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.coordinator.tables.files import load_tables, save_tables
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.agree.result_files import read_results
from jetson_dnn_rt.lab.simulate.scenario import load_scenario
from jetson_dnn_rt.lab.streaming.coco import read_coco
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.models.heads.labels import read_labels
from jetson_dnn_rt.models.heads.result_lines import describe_result
from jetson_dnn_rt.nodes.cameras.camera_info import make_camera_info
from jetson_dnn_rt.platforms.boards import tx2_space
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation

_ROOT = Path(__file__).parents[3]

YAML_WORDS = (
    *TEXTS, "&a ", "*a", "<<: *a", "!!int ''", "!!binary '=='", "!!set {a, b}", "!!timestamp ''",
    "!!omap [a: 1]", f"!!python/object/apply:{TRAP}.Thing []", f"!!python/name:{TRAP}.Thing ''",
    f"!!python/module:{TRAP} ''", "? ", ": ", "- ", "- - - - ", "{", "}", "[", "]", "|\n", ">9\n",
    "%YAML 9.9\n---\n", "---\n", "...\n", "\t", "#", "/**", "/**" * 20, "/*/**", "/**/a" * 9,
    "ros__parameters", "ros__parameters: ", "1:1:1", "0o8", "0b", ".inf", ".nan", "1e5", "~",
    "2001-02-31", "[" * 300, "{a: " * 100,
)  # fmt: skip


def spoil_json(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Change values of a JSON document, or its text."""
    if rng.random() < 0.75:
        try:
            value, source = json.loads(data), json.loads(other or data)
            return json.dumps(spoil_tree(value, rng, source)).encode()
        except ValueError:  # spoilt before
            pass
    return spoil_bytes(data, rng, other)


def spoil_yaml(data: bytes, rng: random.Random) -> bytes:
    """Change values of a YAML document, or its text."""
    how = rng.random()
    if how < 0.4:
        try:
            tree = spoil_tree(yaml.safe_load(data), rng)
            return yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass")
        except Exception:  # PyYAML's, of what was spoilt before
            pass
    if how < 0.9:
        text = data.decode("utf-8", "replace")
        for _ in range(rng.choice((1, 1, 2, 4))):
            text = spoil_text(text, rng, YAML_WORDS)
        return text.encode("utf-8", "surrogatepass")
    return spoil_bytes(data, rng)


class _Text(Format):
    """One file."""

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        ((name, data),) = files.items()
        if name.endswith(".json"):
            ((_, piece),) = other.items()
            return {name: spoil_json(data, piece, rng)}
        return {name: spoil_yaml(data, rng)}

    def read(self, folder: Path, work: Path) -> Any:
        (path,) = folder.iterdir()
        return self.read_file(path, work)

    def read_file(self, path: Path, work: Path) -> Any:
        """Read the one file of an input."""
        raise NotImplementedError


class Tables(_Text):
    """Tables of the coordinator."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        made = {}
        write_tables(folder, make_table(), make_table("segmenter"))
        made["two tasks"] = {"tables.json": (folder / "tables.json").read_bytes()}
        write_clock_tables(folder, make_clocks(tx2_space()))
        made["clocks"] = {"tables.json": (folder / "tables.json").read_bytes()}
        return made

    def read_file(self, path: Path, work: Path) -> list[str]:
        file = load_tables(path)
        save_tables(work / "tables.json", file)
        return [table.task for table in file.tables]


class Parameters(_Text):
    """ROS parameter files, and the values that tasks get from them."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        sections = (
            "/**:\n  ros__parameters: {stages: 2}\n"
            "robot:\n  perception: {ros__parameters: {tasks: [rear/detector]}}\n"
            "  rear:\n    detector:\n      ros__parameters:\n        deadline_ms: 40\n"
            "        preprocessing: {mean: [0.5, 0.5, 0.5], pad_value: 114}\n"
            "/**/detector: {ros__parameters: {model: 'null:1', variants: [full@null]}}\n"
        )
        package = (_ROOT / "config" / "perception.param.yaml").read_bytes()
        made = {"package": package, "sections": sections.encode()}
        return {name: {"params.yaml": data} for name, data in made.items()}

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        names = "/a/b/c/d/e/f/g/h/i/j/k/l/perception: {ros__parameters: {tasks: [t]}}\n"
        values = ": {ros__parameters: {stages: 2}}\n"
        patterns = {"many stars": "/**" * 60 + "/x", "stars between names": "/**/a" * 40}
        made = {name: f"{pattern}{values}{names}" for name, pattern in patterns.items()}
        made["long name"] = "/a" * 100 + "/perception: {ros__parameters: {tasks: [t]}}\n"
        made["long name"] += "/**/a" * 40 + "/x" + values
        bombs = {
            name: f"detector: {{ros__parameters: {{stages: 2}}}}\n{text}"
            for name, text in hostile_yaml.BOMBS.items()
        }
        return {name: {"params.yaml": text.encode()} for name, text in (made | bombs).items()}

    def read_file(self, path: Path, work: Path) -> list[str]:
        """Each task on its own: one that cannot be read does not hide the others."""
        file = read_parameter_file(path)
        tasks = file.tasks
        errors: list[ConfigurationError] = []
        for task in tasks[:20]:
            for declaration in (TaskConfig, ProcessConfig):
                try:
                    file.read(declaration, task)
                except ConfigurationError as error:
                    errors.append(error)
        if errors:
            raise errors[0]
        return list(tasks)


class Labels(_Text):
    """Names of classes."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        made = {
            "list": {"l.yaml": b"[a, b, 'c d', 4]\n"},
            "mapping": {"l.yaml": b"path: x\nnames:\n  0: a\n  1: b\n  2: c\n"},
            "lines": {"l.txt": "a\nb\nÄ\n".encode()},
        }
        return {name: dict(files) for name, files in made.items()}

    def read_file(self, path: Path, work: Path) -> int:
        return len(read_labels(path))


class Coco(_Text):
    """Boxes of ground truth."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        value = {
            "categories": [{"id": 1, "name": "a"}, {"id": 7, "name": "b"}],
            "images": [
                {"id": n, "file_name": f"{n}.jpg", "sid": 0, "fid": n, "height": 9, "width": 9}
                for n in range(3)
            ],
            "sequences": ["s"],
            "annotations": [
                {"id": n, "image_id": n % 3, "category_id": 7, "bbox": [1, 2, 3.5, 4]}
                for n in range(5)
            ],
        }
        return {"boxes": {"boxes.json": json.dumps(value).encode()}}

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        (files,) = sound.values()
        value = json.loads(files["boxes.json"])
        value["images"][0]["id"] = float("inf")
        texts = {"an infinite number": json.dumps(value), "lists in each other": "[" * 100_000}
        return {name: {"boxes.json": text.encode()} for name, text in texts.items()}

    def read_file(self, path: Path, work: Path) -> int:
        return len(read_coco(path).frames)


class ScenarioFiles(Format):
    """Scenarios of the simulator, with the board and the networks that they name."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        scenarios = _ROOT / "config" / "scenarios"
        made: dict[str, Files] = {}
        for name, board in (("tx2_cohort4", "tx2"), ("xavier_thermal", "xavier")):
            paths = (f"{name}.yaml", f"boards/{board}.yaml", "networks.yaml")
            made[name] = {path: (scenarios / path).read_bytes() for path in paths}
        return made

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        name = rng.choice(sorted(files))
        return {**files, name: spoil_yaml(files[name], rng)}

    def read(self, folder: Path, work: Path) -> list[str]:
        (path,) = (one for one in folder.glob("*.yaml") if one.name != "networks.yaml")
        return [task.name for task in load_scenario(path).tasks]


class Results(_Text):
    """Results of a run, a line of JSON for each frame."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        head = {"task": "t", "stamp_ns": 5, "outcome": "met", "variant": "full", "file": "a.png"}
        mask = Segmentation(np.eye(8, dtype=np.uint8))
        scores, numbers = np.float32([0.5]), np.array([1])
        results: list[tuple[Result, Kind]] = [
            (Detections(np.float32([[1, 2, 3, 4]]), scores, numbers), "detection"),
            (Classification(numbers, scores), "classification"),
            (mask, "segmentation"),
        ]
        lines = {
            kind: [
                {**head, "frame": number, **describe_result(result, kind, ("a", "b"), masks=True)}
                for number in range(2)
            ]
            for result, kind in results
        }
        return {
            name: {"results.jsonl": "".join(json.dumps(one) + "\n" for one in some).encode()}
            for name, some in lines.items()
        }

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        ((name, data),) = files.items()
        lines = data.splitlines() or [b""]
        number = rng.randrange(len(lines))
        lines[number] = spoil_json(lines[number], next(iter(other.values())), rng)
        return {name: b"\n".join(lines) + b"\n"}

    def read_file(self, path: Path, work: Path) -> list[str]:
        return sorted(map(str, read_results(path)))


class Calibration(_Text):
    """Calibrations of cameras, as ``camera_calibration`` writes them."""

    packages = ("sensor_msgs",)

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        def matrix(rows: int, columns: int) -> dict[str, Any]:
            values = [float(index) for index in range(rows * columns)]
            return {"rows": rows, "cols": columns, "data": values}

        value = {
            "image_width": 64, "image_height": 48, "camera_name": "front",
            "distortion_model": "plumb_bob", "camera_matrix": matrix(3, 3),
            "distortion_coefficients": matrix(1, 5), "rectification_matrix": matrix(3, 3),
            "projection_matrix": matrix(3, 4),
        }  # fmt: skip
        return {"usual": {"camera.yaml": yaml.safe_dump(value).encode()}}

    def read_file(self, path: Path, work: Path) -> str:
        return str(make_camera_info(str(path), 48, 64).distortion_model)
