"""Tasks of an evaluation: defaults, and choices that are made once."""

from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path

import pytest

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.evaluate.chunk import TaskSpec
from jetson_dnn_rt.lab.evaluate.plan import RUNS, OpenTask, fix_task, make_config

MS = 1_000_000
NULL = TaskSpec("detector", "null:1", (), 40 * MS, 33 * MS)


def test_a_task_is_the_nodes_but_computes_alone_without_a_library() -> None:
    spec = dataclasses.replace(NULL, values={"preprocessing": {"color": "rgb"}, "stages": 3})
    config = make_config(spec)
    node = TaskConfig("detector", model="null:1", stages=3, preprocess_color="rgb")
    assert config == dataclasses.replace(node, kind="", threads=1, engine_cache="none")


def test_a_fixed_task_names_what_was_chosen() -> None:
    fixed = fix_task(NULL)
    assert fixed.spec.variants == ("full@null",)
    assert fixed.spec.values["stages"] == 1
    assert fixed.spec.values[RUNS] == {"full@null": 1}
    assert fixed.stages == ("preprocess", "inference", "decode")
    assert len(fixed.model_hash) == 64
    assert pickle.loads(pickle.dumps(fixed)) == fixed
    assert fix_task(fixed.spec).spec == fixed.spec


def test_what_cannot_run_is_left_out_only_where_it_is_asked_for() -> None:
    missing = "tucker-0.50@torch-fp32"
    spec = dataclasses.replace(
        NULL, model="builtin:detector", variants=("full@torch-fp32", missing)
    )
    fixed = fix_task(spec)
    assert fixed.spec.variants == ("full@torch-fp32",)
    assert missing in fixed.left_out
    with pytest.raises(ConfigurationError, match="detector: variant"):
        OpenTask(spec)


def test_lists_of_mixed_precision_are_those_of_the_task(tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="apache-tvm is not installed")
    values = {"engine_cache": os.fspath(tmp_path), "amp_lists": "missing.yaml"}
    names = ("full@torch-fp32", "full@tvm-fp16")
    spec = dataclasses.replace(NULL, model="builtin:detector", variants=names, values=values)
    with pytest.raises(ConfigurationError, match=r"detector: .*missing\.yaml"):
        OpenTask(spec)
