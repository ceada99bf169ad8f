# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tasks of an evaluation: choices that are made once."""

from __future__ import annotations

import os
import pickle
import sys

import pytest
from fleet_work import make_spec

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.evaluate.plan import OpenTask, fix_task


def test_a_fixed_task_names_what_was_chosen():
    fixed = fix_task(make_spec())
    assert fixed.spec.config.variants == ("full@null",)
    assert fixed.spec.config.stages == 1
    assert fixed.spec.runs == {"full@null": 1}
    assert fixed.stages == ("preprocess", "inference", "decode")
    assert len(fixed.model_hash) == 64
    assert pickle.loads(pickle.dumps(fixed)) == fixed
    assert fix_task(fixed.spec).spec == fixed.spec


def test_what_cannot_run_is_left_out_only_where_it_is_asked_for():
    missing = "tucker-0.50@torch-fp32"
    spec = make_spec("builtin:detector", "full@torch-fp32", missing)
    fixed = fix_task(spec)
    assert fixed.spec.config.variants == ("full@torch-fp32",)
    assert missing in fixed.left_out
    with pytest.raises(ConfigurationError, match="detector: variant"):
        OpenTask(spec)


@pytest.mark.parametrize("variant", ["full@torch-fp32", "full@tvm-fp16"])
def test_lists_of_mixed_precision_must_be_there_without_tvm_too(tmp_path, monkeypatch, variant):
    monkeypatch.setitem(sys.modules, "tvm", None)
    values = {"engine_cache": os.fspath(tmp_path), "amp_lists": "missing.yaml"}
    spec = make_spec("builtin:detector", variant, **values)
    with pytest.raises(ConfigurationError, match=r"missing\.yaml: No such file .* amp_lists"):
        OpenTask(spec)
