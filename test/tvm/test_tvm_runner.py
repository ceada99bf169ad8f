# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What TVM compiles for, what it compiles, and how that runs."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from networks import BoxesAndScores, Classifier, make_model
from onnx_parts import make_part, node
from tvm_networks import SIZE, make_small, tune_model

pytest.importorskip("tvm", reason="the extra tvm is not installed")

from jetson_dnn_rt.backends.base import RunnerClosedError
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.tvm.compile import compile_module, export_library, find_linker, schedule
from jetson_dnn_rt.tvm.database import TuningDatabase
from jetson_dnn_rt.tvm.exponential import LEAST, MOST
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.measuring import build_candidate
from jetson_dnn_rt.tvm.runner import ALIGNMENT, TvmRunner
from jetson_dnn_rt.tvm.target import TvmTarget, find_local_target, make_target, parse_target


@pytest.fixture(scope="module")
def target():
    return find_local_target(1)


@pytest.fixture(scope="module")
def model():
    return make_small()


def make_runner(part, target, precision="fp32", database=None, **options):
    module = schedule(lower(part, precision, target, **options), target, database)
    return TvmRunner(part, precision, compile_module(module, target), target)


@pytest.fixture(scope="module")
def runner(model, target):
    return make_runner(model, target)


def run_torch(model, image):
    with torch.inference_mode():
        outputs = model.torch_module()(torch.from_numpy(image))
    return [value.numpy() for value in (outputs if isinstance(outputs, tuple) else (outputs,))]


def make_image(size, seed=0):
    return np.random.default_rng(seed).random((1, 3, *size), np.float32)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("network", [Classifier, BoxesAndScores])
def test_agrees_with_torch(target, network, precision, channels_last):
    model = make_model(network(), (32, 48))
    runner = make_runner(model, target, precision, channels_last=channels_last)
    image = make_image((32, 48))
    outputs, expected = runner.run([image]), run_torch(model, image)
    assert (runner.backend, runner.precision, runner.device) == ("tvm", precision, target.device)
    assert len(outputs) == len(expected)
    for output, wanted in zip(outputs, expected, strict=True):
        assert output.dtype == np.float32
        tolerance = 1e-4 if precision == "fp32" else 0.02
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=tolerance)


def test_aligned_inputs_and_outputs_are_not_copied(target, runner):
    if target.device != "cpu":
        pytest.skip("on a CUDA device the picture is copied there")
    image = runner.allocate_input()
    assert image.ctypes.data % ALIGNMENT == 0
    assert image.shape == (1, 3, *SIZE)
    image[...] = make_image(SIZE)
    (output,) = runner.run([image])
    assert runner.copied_bytes == 0
    assert output.base is not None, "it is a view of TVM's memory"
    first = output.copy()
    image[...] = 0.25
    (second,) = runner.run([image])
    assert not np.array_equal(first, second), "the same buffer is read anew"


def test_others_are_copied_once_and_counted(runner):
    image = make_image(SIZE)
    (expected,) = (value.copy() for value in runner.run([image]))
    memory = np.zeros(image.size + 1, np.float32)
    begin = 1 if memory.ctypes.data % ALIGNMENT == 0 else 0
    shifted = memory[begin : begin + image.size].reshape(image.shape)
    shifted[...] = image
    assert shifted.ctypes.data % ALIGNMENT
    last = np.ascontiguousarray(image.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    for other in (shifted, last):
        (output,) = runner.run([other])
        assert runner.copied_bytes >= image.nbytes
        assert np.array_equal(output, expected)


def test_parts_of_several_inputs(target):
    part = make_part(
        [node("Add", "left right", "sum"), node("Relu", "sum", "out")],
        {},
        {"left": (1, 4), "right": (1, 4)},
        {"out": 1},
    )
    runner = make_runner(part, target)
    left = np.array([[1, -2, 3, -4]], np.float32)
    right = np.array([[1, 1, -5, 5]], np.float32)
    assert runner.run([left, right])[0].tolist() == [[2, 0, 0, 1]]


def test_threads_of_kernels_are_set_for_the_thread_that_runs(model):
    pytest.importorskip("xgboost", reason="the extra tvm is not installed")
    target = find_local_target(2)
    database = TuningDatabase(target)
    tune_model(model, database, trials=1)
    runner = make_runner(model, target, database=database)
    image, found = make_image(SIZE), []
    thread = threading.Thread(target=lambda: found.append(runner.run([image])[0].copy()))
    thread.start()
    thread.join()
    np.testing.assert_allclose(found[0], run_torch(model, image)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not find_linker(), reason="no C++ compiler to link with")
def test_a_library_on_disk_gives_the_same_bits(target, model, tmp_path):
    executable = compile_module(schedule(lower(model, "fp32", target), target, None), target)
    image = make_image(SIZE)
    (expected,) = TvmRunner(model, "fp32", executable, target).run([image])
    export_library(executable, tmp_path / "network.so")
    np.savez(tmp_path / "io.npz", image=image, expected=expected)
    # In a process that never saw the network.
    program = (
        "import sys, numpy as np, tvm\n"
        "from pathlib import Path\n"
        "from jetson_dnn_rt.tvm.compile import load_library\n"
        "from tvm import relax\n"
        f"machine = relax.VirtualMachine(load_library(Path('network.so')), "
        f"tvm.device('{target.device}'))\n"
        "io = np.load('io.npz')\n"
        "out = machine['main'](tvm.runtime.tensor(io['image'], tvm.device"
        f"('{target.device}'))).numpy()\n"
        "sys.exit(0 if np.array_equal(out, io['expected']) else 3)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert done.returncode == 0


def test_refuses_what_it_cannot_read(target):
    part = make_part([node("Det", "image", "found")], {}, {"image": (1, 4, 4)}, {"found": 1})
    with pytest.raises(ModelError, match=r"cannot be read by TVM: .*Det"):
        make_runner(part, target)


def test_a_closed_runner_says_so(target, model):
    runner = make_runner(model, target)
    runner.close()
    runner.close()
    with pytest.raises(RunnerClosedError, match="tvm runner"):
        runner.run([make_image(SIZE)])


LANES = 16


def compile_exp(target, count, kind, lanes):
    """A kernel of `count` numbers, `lanes` of them at a time; built as every candidate is."""
    from tvm import s_tir, te, tirx

    numbers = te.placeholder((count,), kind, "numbers")
    powers = te.compute((count,), lambda index: tirx.exp(numbers[index]), "powers")
    kernel = te.create_prim_func([numbers, powers])
    schedule = s_tir.Schedule(kernel)
    (loop,) = schedule.get_loops(schedule.get_sblock("powers"))
    schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    return build_candidate(schedule.mod, target.to_tvm())


def compute_exp(values, lanes=LANES):
    """Run it here."""
    import tvm

    built = compile_exp(find_local_target(1), len(values), str(values.dtype), lanes)
    powers = tvm.runtime.tensor(np.empty_like(values))
    built["main"](tvm.runtime.tensor(values), powers)
    return np.array(powers.numpy())


@pytest.mark.parametrize("lanes", [1, LANES])
def test_as_near_as_libm(lanes):
    dense = np.linspace(LEAST + 1e-4, MOST - 1e-4, 1 << 20).astype(np.float32)
    tiny = np.logspace(-40, 0, 1 << 10).astype(np.float32)
    values = np.concatenate([dense, tiny, -tiny])
    true = np.exp(values.astype(np.float64))
    assert np.max(np.abs(compute_exp(values, lanes) - true) / true) < 2e-7


def test_ends_and_what_is_no_number():
    values = np.zeros(LANES, np.float32)
    values[:8] = [0, -0.0, np.nan, np.inf, -np.inf, 1e30, -1e30, 88.8]
    powers = compute_exp(values)
    assert list(powers[:2]) == [1, 1]
    assert np.isnan(powers[2])
    assert list(powers[3:8]) == [np.inf, 0, np.inf, 0, np.inf]


def test_half_precision_is_computed_wide():
    values = np.linspace(-12, 11, 1 << 12).astype(np.float16)
    true = np.exp(values.astype(np.float64)).astype(np.float16)
    assert np.mean(compute_exp(values) == true) > 0.99
    np.testing.assert_allclose(compute_exp(values), true, rtol=1e-3, atol=6e-8)


def test_double_precision_stays_with_libm():
    values = np.linspace(-700, 700, 1 << 10)
    np.testing.assert_allclose(compute_exp(values), np.exp(values), rtol=1e-15)


def test_threads_may_be_the_first_at_the_same_time():
    """A pool of threads compiles candidates; in a process of its own, where nobody was before."""
    code = """
import sys, threading
from jetson_dnn_rt.tvm.exponential import vectorise_exp
import tvm.tirx
sys.setswitchinterval(1e-6)
errors, barrier = [], threading.Barrier(8)
def call():
    barrier.wait()
    try:
        vectorise_exp()
    except Exception as error:
        errors.append(error)
threads = [threading.Thread(target=call) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sys.exit(f"{errors}" if errors else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_called_one_by_one():
    """A call of libm in a board's code would be one for each element."""
    target = parse_target("aarch64:cortex-a78ae", 1)
    assembly = compile_exp(target, LANES, "float32", LANES).inspect_source("s")
    assert "fmla" in assembly or "fmul" in assembly
    assert "expf" not in assembly


@pytest.mark.parametrize(
    ("text", "kind", "cpu", "triple", "arch"),
    [
        ("x86-64:znver4", "llvm", "znver4", "x86_64-linux-gnu", ""),
        ("aarch64:cortex-a78ae", "llvm", "cortex-a78ae", "aarch64-linux-gnu", ""),
        ("cuda:sm_72", "cuda", "carmel", "aarch64-linux-gnu", "sm_72"),
        ("cuda:sm_87", "cuda", "cortex-a78ae", "aarch64-linux-gnu", "sm_87"),
    ],
)
def test_reads_targets(text, kind, cpu, triple, arch):
    target = parse_target(text, 2)
    assert target == TvmTarget(kind, cpu, triple, arch, 2)
    made = target.to_tvm()
    assert made.kind.name == kind
    assert target.device == ("cuda" if arch else "cpu")


def test_a_discrete_device_has_the_host_that_is_here():
    target, local = parse_target("cuda:sm_90", 1), find_local_target(1)
    assert (target.cpu, target.triple, target.arch) == (local.cpu, local.triple, "sm_90")
    assert target.to_tvm().kind.name == "cuda"


@pytest.mark.parametrize("text", ["", "znver4", "arm:cortex", "x86-64:", "cuda:87", "x86-64:a b"])
def test_refuses_what_it_does_not_know(text):
    with pytest.raises(ConfigurationError, match="TVM target"):
        parse_target(text, 1)


def test_one_line_says_all_of_it():
    assert (
        TvmTarget("cuda", "cortex-a78ae", "aarch64-linux-gnu", "sm_87", 3).text
        == "cuda sm_87 aarch64-linux-gnu cortex-a78ae threads=3"
    )
    assert TvmTarget("llvm", "znver4", "x86_64-linux-gnu").text == (
        "llvm x86_64-linux-gnu znver4 threads=1"
    )


def test_the_builder_of_llvm_is_no_part_of_the_machine():
    ours = make_target("znver4", "x86_64-conda-linux-gnu", "", 1)
    theirs = make_target("znver4", "x86_64-unknown-linux-gnu", "", 1)
    assert ours == theirs == TvmTarget("llvm", "znver4", "x86_64-linux-gnu")
