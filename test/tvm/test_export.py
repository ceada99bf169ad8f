# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Networks as C99: the plan of memory, kernels, the files, the command."""

from __future__ import annotations

import copy
import ctypes
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_parts import OnnxPart, make_part, node
from tvm_networks import make_small, tune_model

pytest.importorskip("tvm", reason="apache-tvm is not installed")

from jetson_dnn_rt.cli import main
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.tvm.database import TuningDatabase
from jetson_dnn_rt.tvm.export_c.call_graph import describe_steps, measure_steps, write_call_graph
from jetson_dnn_rt.tvm.export_c.export import ExportOptions, export_c
from jetson_dnn_rt.tvm.export_c.kernels import write_kernel
from jetson_dnn_rt.tvm.export_c.planner import Block, find_bound, plan_memory, round_up, sum_in_use
from jetson_dnn_rt.tvm.export_c.program import lower_kernels
from jetson_dnn_rt.tvm.export_c.sources import make_comment, make_identifier, write_sources
from jetson_dnn_rt.tvm.target import TvmTarget, find_local_target, make_target, parse_target


def need(*tools):
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def call(*command, folder):
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300.0
    )


def build(folder, *options):
    # Untuned kernels gain nothing from more than -O1, and compile in a third of the time.
    done = call("make", "-s", "OPT=-O1", *options, folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def check(folder, *runner):
    """The self-test compares with torch, and a second run with the first, bit by bit."""
    done = call(*runner, "./net_selftest", ".", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("passed\n")


def local():
    found = find_local_target(1)
    return make_target(found.cpu, found.triple, "", 1)


def export(part, folder, database=None, target=None, **options):
    chosen = ExportOptions("net", part.name, local=target is None, **options)
    return export_c(part, "fp32", target or local(), database, chosen, folder)


@pytest.fixture(scope="module")
def detector():
    return load_model("builtin:detector")


@pytest.fixture(scope="module")
def sources(detector, tmp_path_factory):
    folder = tmp_path_factory.mktemp("detector")
    return export(detector, folder), folder


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A small network whose kernels have blocks that fill the registers."""
    model, folder = make_small(), tmp_path_factory.mktemp("tuned")
    database = TuningDatabase(local())
    tune_model(model, database)
    return export(model, folder, database), folder


@pytest.fixture(scope="module")
def built(tuned, tmp_path_factory):
    """The small network, compiled."""
    need("make", "gcc")
    folder = Path(shutil.copytree(tuned[1], tmp_path_factory.mktemp("built") / "copy"))
    build(folder)
    return folder


@pytest.fixture
def folder(built, tmp_path):
    """A copy of it, to be changed."""
    return Path(shutil.copytree(built, tmp_path / "copy"))


@pytest.mark.parametrize("kernels", ["gnu", "iso"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("network", ["sources", "tuned"])
def test_builds_without_a_warning_and_gives_what_torch_gives(
    request, tmp_path, network, compiler, kernels
):
    need("make", compiler)
    folder = shutil.copytree(request.getfixturevalue(network)[1], tmp_path / "copy")
    build(folder, f"CC={compiler}", f"KERNELS={kernels}")
    check(folder)


def test_selftest_notices_another_output(folder):
    file = folder / "net_output_0.bin"
    values = np.fromfile(file, "<f4")
    values[3] += 3e-4 * np.abs(values).max()
    values.tofile(file)
    done = call("./net_selftest", ".", folder=folder)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "FAILED")


def test_damaged_weights_are_refused(folder):
    file = folder / "net_weights.bin"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(bytes(data))
    done = call("./net_selftest", ".", folder=folder)
    assert (done.returncode, done.stderr) == (2, "error 4\n")
    file.write_bytes(bytes(data[:-64]))
    assert "has another size" in call("./net_selftest", ".", folder=folder).stderr


def test_valgrind_finds_nothing(folder):
    need("valgrind")
    # It does not know the newest vector instructions.
    build(folder, "clean", "all", "ARCH=")
    check(folder, "valgrind", "-q", "--error-exitcode=9")


@pytest.mark.parametrize("kernels", ["gnu", "iso"])
def test_runs_on_aarch64(folder, kernels):
    need("aarch64-linux-gnu-gcc", "qemu-aarch64")
    build(
        folder, "clean", "all", "CC=aarch64-linux-gnu-gcc", "ARCH=-mcpu=cortex-a78ae",
        "LDFLAGS=-static", f"KERNELS={kernels}",
    )  # fmt: skip
    check(folder, "qemu-aarch64", "-cpu", "max")


def test_builds_with_cmake(folder):
    need("cmake")
    for command in (
        ("cmake", "-S", ".", "-B", "build", "-DCMAKE_C_FLAGS_RELEASE=-O1"),
        ("cmake", "--build", "build"),
        ("ctest", "--test-dir", "build"),
    ):
        done = call(*command, folder=folder)
        assert done.returncode == 0, done.stdout + done.stderr


def test_needs_no_library_but_math_and_string(built):
    need("nm")
    lines = call("nm", "libnet.a", folder=built).stdout.splitlines()
    outside = {line.split()[-1] for line in lines if " U " in line}
    assert {name for name in outside if not name.startswith("net_")} <= {
        *("expf", "floorf", "memcpy", "memset", "memmove"),
        *("_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"),
    }


class Odd(OnnxPart):
    """Outputs that are an input, a weight, or there twice."""

    def torch_module(self):
        weight = torch.full((260, 260), 0.01)

        def compute(left, right):
            total = (left @ weight if b"MatMul" in self.data else left) + right
            return total, total, left, weight

        return compute


@pytest.mark.parametrize("array", [True, False])
@pytest.mark.parametrize("product", [False, True], ids=["without_an_arena", "with_an_arena"])
def test_every_kind_of_output(tmp_path, array, product):
    need("make", "gcc")
    nodes = [node("MatMul", "left weight", "product")] if product else []
    nodes += [node("Add", "product right" if product else "left right", "sum")]
    nodes += [
        node("Identity", *names) for names in zip(["sum", "left", "weight"], "abc", strict=True)
    ]
    shapes = dict.fromkeys(("left", "right"), (1, 260))
    weights = {"weight": np.full((260, 260), 0.01, np.float32)}
    part = make_part(nodes, weights, shapes, dict.fromkeys(("sum", *"abc"), 1))
    exported = export(Odd(part.data, part.input_shapes), tmp_path, array=array)
    assert (exported.program.plan.arena_bytes > 0) == product
    assert (tmp_path / "net_weights.bin").exists() is not array
    build(tmp_path)
    check(tmp_path)


def test_arena_is_near_its_lower_bound(sources):
    program = sources[0].program
    assert program.plan.bound_bytes <= program.plan.arena_bytes
    assert program.plan.arena_bytes <= 1.3 * program.plan.bound_bytes
    assert program.plan.bound_bytes == max(
        program.in_use(i) for i in range(len(program.network.calls))
    )


def test_no_value_is_overwritten_while_it_is_needed(sources):
    """Play the call graph: what a step reads is what was written for it."""
    owner: dict[int, tuple[str, int]] = {}
    for step in describe_steps(sources[0].program):
        if step["workspace_bytes"]:
            begin = step["workspace_offset"]
            for place in range(begin, begin + step["workspace_bytes"], 64):
                owner[place] = ("workspace", step["step"])
        for value in step["inputs"]:
            if value["place"] == "arena":
                places = range(value["offset"], value["offset"] + value["bytes"], 64)
                assert all(owner[place][0] == value["name"] for place in places), step
        for value in step["outputs"]:
            if value["place"] == "arena":
                for place in range(value["offset"], value["offset"] + value["bytes"], 64):
                    assert owner.get(place) != ("workspace", step["step"])
                    owner[place] = (value["name"], step["step"])


def test_macs_are_those_of_the_layers(sources, detector):
    """Of the detector's convolutions, counted by hand in docs: 257.2 M (docs/variants.md)."""
    macs = sum(step["macs"] for step in describe_steps(sources[0].program))
    assert macs == pytest.approx(257.2e6, rel=0.02)


def test_times_are_of_the_same_steps(tuned, folder):
    steps, whole = measure_steps(folder, "net", 1)
    assert len(steps) == len(tuned[0].program.network.calls)
    assert all(time >= 0.0 for time in steps)
    assert whole >= max(steps)
    graph = write_call_graph(folder, tuned[0], steps)
    assert json.loads((folder / "call_graph.json").read_text()) == graph
    assert graph["tuned"] is True


@pytest.mark.slow
@pytest.mark.parametrize("source", ["builtin:segmenter", "torchvision:mobilenet_v2"])
def test_other_networks(source, tmp_path):
    need("make", "gcc")
    if source.startswith("torchvision"):
        pytest.importorskip("torchvision", reason="torchvision is not installed")
    exported = export(load_model(source, weights="none"), tmp_path)
    plan = exported.program.plan
    assert plan.arena_bytes <= 1.3 * plan.bound_bytes
    build(tmp_path)
    check(tmp_path)


def test_sums_of_tuned_kernels_stay_in_registers(tuned):
    """Each sum has a place of its own, by a number: a compiler makes a register of it."""
    assert tuned[0].is_tuned
    kernels = tuned[0].program.kernels.values()
    sums = re.compile(r"\(v\d+ \*\)\(\w+ \+ \(\d+ \* \d+\) \+ \d+\) = \(\*\(const v")
    convolutions = [each for each in kernels if "conv" in each.name]
    assert len(convolutions) == 3
    assert all(each.stack_bytes and sums.search(each.text) for each in convolutions)


@pytest.mark.parametrize(
    ("precision", "target", "reason"),
    [
        ("fp16", TvmTarget("llvm", "x86-64-v3", "x86_64-linux-gnu"), "fp16"),
        ("fp32", TvmTarget("cuda", "cortex-a78ae", "aarch64-linux-gnu", "sm_87"), "CPUs"),
        ("fp32", TvmTarget("llvm", "x86-64-v3", "x86_64-linux-gnu", "", 2), "one thread"),
    ],
)
def test_what_c_has_not_is_refused(detector, tmp_path, precision, target, reason):
    with pytest.raises(BackendUnavailableError, match=reason):
        export_c(detector, precision, target, None, ExportOptions("n", "m"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_name_must_be_one_of_c():
    with pytest.raises(ConfigurationError, match="identifier"):
        ExportOptions("builtin:detector", "m")


def test_names_from_a_file_stay_within_comments(sources):
    """Campaign 8: names of a model and of its inputs come from its file, and get into C."""
    evil = "x */ int evil = 1; /* \\\n??/\n"
    assert make_comment("onnx:/a b/c.onnx, full@tvm-fp32") == "onnx:/a b/c.onnx, full@tvm-fp32"
    program = copy.deepcopy(sources[0].program)
    name = program.network.inputs[0]
    program.network.tensors[name] = replace(program.network.tensors[name], name=evil)
    written = write_sources(program, evil, "-march=native", array=False)
    for text in written.values():
        assert "evil = 1" not in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def test_names_are_identifiers():
    assert make_identifier("builtin:detector inference-2") == "builtin_detector_inference_2"
    assert make_identifier("onnx:/tmp/3 Nets.onnx") == "onnx_tmp_3_nets_onnx"
    assert make_identifier("3") == "net_3"
    assert make_identifier(":") == "network"


def test_target_of_another_processor_names_it(tmp_path):
    export(make_small(), tmp_path, target=parse_target("aarch64:cortex-a78ae", 1))
    assert "ARCH = -mcpu=cortex-a78ae" in (tmp_path / "Makefile").read_text()


def test_a_stage_is_exported(tmp_path, capsys, caplog):
    output = tmp_path / "sources"
    command = "export-c --model builtin:detector --stages 4 --stage 4 --engine-cache none"
    options = "--name last --call-graph --json --output"
    with caplog.at_level(logging.WARNING):
        assert main.main([*command.split(), *options.split(), str(output)]) == 0
    captured = capsys.readouterr()
    (line,) = captured.out.splitlines()
    report = json.loads(line)
    assert report["variant"] == "full@tvm-fp32"
    assert (report["tuned"], report["kernels_tuned"]) == (False, 0)
    assert report["arena_bound_bytes"] <= report["arena_bytes"]
    assert {Path(file).name for file in report["files"]} <= {
        path.name for path in output.iterdir()
    }
    graph = json.loads((output / "call_graph.json").read_text())
    assert graph["steps"] == report["call_graph"]
    assert all(step["function"] in captured.err for step in graph["steps"])
    # An untuned export must not be taken for the real thing.
    assert "RIGHT BUT SLOW" in caplog.text


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (["--variant", "full@openvino-fp32"], main.BAD_ARGUMENTS, "kernels come from TVM"),
        (["--stages", "2"], main.BAD_ARGUMENTS, "--stages without --stage"),
        (["--stages", "2", "--stage", "3"], main.BAD_ARGUMENTS, "--stage 3 of --stages 2"),
        (["--target", "sparc:v9"], main.BAD_ARGUMENTS, "unknown"),
        (["--variant", "tucker-0.50@tvm-fp32"], main.BAD_ARGUMENTS, "is not in the library"),
        (["--variant", "full@tvm-fp16"], main.FAILED, "no type of half precision"),
    ],
)
def test_bad_arguments(options, code, reason, tmp_path, capsys):
    fixed = ["--model", "builtin:detector", "--engine-cache", "none"]
    command = ["export-c", *fixed, "--output", str(tmp_path / "out"), *options]
    assert main.main(command) == code
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_jinja2_the_install_line_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(BackendUnavailableError, match="needs jinja2: pip install apache-tvm"):
        export(make_small(), tmp_path)


WHOLE = np.arange(-64, 64, dtype=np.int32)
Expression = Callable[[Any], Any]


def compute(expression, values, folder):
    """Element by element, by a kernel of TVM's written as C."""
    import tvm
    from tvm import te

    given = te.placeholder(values.shape, str(values.dtype), "given")
    found = te.compute(values.shape, lambda index: expression(given[index]), "found")
    module = tvm.IRModule({"kernel": te.create_prim_func([given, found])})
    kernel = write_kernel("kernel", lower_kernels(module)["kernel"], "net", 0)
    (folder / "kernel.c").write_text(f"#include <math.h>\n#include <stdint.h>\n{kernel.text}")
    subprocess.run(
        ["gcc", "-std=c99", "-Wall", "-Werror", "-shared", "-fPIC", "-o", "kernel.so", "kernel.c"],
        cwd=folder, check=True,
    )  # fmt: skip
    result = np.empty(values.shape, str(found.dtype))
    ctypes.CDLL(str(folder / "kernel.so")).net_kernel(
        ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(result.ctypes.data)
    )
    return result


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # Powers of two become shifts and masks, of numbers below zero as well.
        (lambda x: x // 8, lambda x: x // 8),
        (lambda x: x % 8, lambda x: x % 8),
        (lambda x: x // 7 * 100 + x % 7, lambda x: x // 7 * 100 + x % 7),
        (lambda x: (x << 3) | 5, lambda x: (x << 3) | 5),
        (lambda x: (x >> 2) ^ (x & 12), lambda x: (x >> 2) ^ (x & 12)),
        (lambda x: ~x, lambda x: ~x),
    ],
)
def test_whole_numbers(expression, expected, tmp_path):
    assert np.array_equal(compute(expression, WHOLE, tmp_path), expected(WHOLE))


ALIGNMENT = 64

spans = st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(1, 5000))


@settings(max_examples=200)
@given(st.lists(spans, max_size=24))
def test_blocks_in_use_together_do_not_overlap_in_an_arena_of_a_sensible_size(values):
    blocks = [Block(f"b{i}", size, a, a + n) for i, (a, n, size) in enumerate(values)]
    plan = plan_memory(blocks, ALIGNMENT)
    assert set(plan.offsets) == {block.name for block in blocks}
    for block in blocks:
        begin = plan.offsets[block.name]
        assert begin % ALIGNMENT == 0
        assert 0 <= begin <= plan.arena_bytes - block.bytes
        for other in blocks:
            if other is not block and block.first <= other.last and other.first <= block.last:
                start = plan.offsets[other.name]
                assert start + other.bytes <= begin or begin + block.bytes <= start
    sizes = {block: round_up(block.bytes, ALIGNMENT) for block in blocks}
    in_use = (sum(sizes[b] for b in blocks if b.first <= step <= b.last) for step in range(50))
    assert plan.bound_bytes == max(in_use)
    assert plan.bound_bytes <= plan.arena_bytes <= sum(sizes.values())


def test_memory_of_a_chain_is_used_again():
    chain = [Block(f"b{i}", 64, i, i + 1) for i in range(10)]
    assert plan_memory(chain, 64).arena_bytes == 128


def test_a_gap_that_fits_best_is_taken():
    # Two gaps of 128 and 64 bytes are free in step 1; 64 bytes go into the smaller one.
    blocks = [
        Block("a", 64, 0, 3),
        Block("wide", 128, 0, 0),
        Block("b", 64, 0, 3),
        Block("small", 64, 1, 1),
    ]
    plan = plan_memory(blocks, 64)
    assert plan.arena_bytes == plan.bound_bytes == 256


def test_in_use_counts_whole_alignments():
    blocks = [Block("a", 1, 0, 1), Block("b", 65, 1, 2)]
    assert [sum_in_use(blocks, step, 64) for step in range(4)] == [64, 192, 128, 0]
    assert find_bound(blocks) == 66
