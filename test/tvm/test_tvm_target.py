"""What TVM compiles for: found, read from text, and said in one line."""

from __future__ import annotations

import pytest

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.tvm.target import (
    TvmTarget,
    find_local_target,
    make_target,
    parse_target,
)

tvm = pytest.importorskip("tvm", reason="the extra tvm is not installed")


@pytest.mark.parametrize(
    ("text", "kind", "cpu", "triple", "arch"),
    [
        ("x86-64:znver4", "llvm", "znver4", "x86_64-linux-gnu", ""),
        ("aarch64:cortex-a78ae", "llvm", "cortex-a78ae", "aarch64-linux-gnu", ""),
        ("cuda:sm_72", "cuda", "carmel", "aarch64-linux-gnu", "sm_72"),
        ("cuda:sm_87", "cuda", "cortex-a78ae", "aarch64-linux-gnu", "sm_87"),
    ],
)
def test_reads_targets(text: str, kind: str, cpu: str, triple: str, arch: str) -> None:
    target = parse_target(text, 2)
    assert target == TvmTarget(kind, cpu, triple, arch, 2)
    made = target.to_tvm()
    assert made.kind.name == kind
    assert target.device == ("cuda" if arch else "cpu")


def test_a_discrete_device_has_the_host_that_is_here() -> None:
    target, local = parse_target("cuda:sm_90", 1), find_local_target(1)
    assert (target.cpu, target.triple, target.arch) == (local.cpu, local.triple, "sm_90")
    assert target.to_tvm().kind.name == "cuda"


@pytest.mark.parametrize("text", ["", "znver4", "arm:cortex", "x86-64:", "cuda:87", "x86-64:a b"])
def test_refuses_what_it_does_not_know(text: str) -> None:
    with pytest.raises(ConfigurationError, match="TVM target"):
        parse_target(text, 1)


def test_one_line_says_all_of_it() -> None:
    assert (
        TvmTarget("cuda", "cortex-a78ae", "aarch64-linux-gnu", "sm_87", 3).text
        == "cuda sm_87 aarch64-linux-gnu cortex-a78ae threads=3"
    )
    assert TvmTarget("llvm", "znver4", "x86_64-linux-gnu").text == (
        "llvm x86_64-linux-gnu znver4 threads=1"
    )


def test_the_builder_of_llvm_is_no_part_of_the_machine() -> None:
    ours = make_target("znver4", "x86_64-conda-linux-gnu", "", 1)
    theirs = make_target("znver4", "x86_64-unknown-linux-gnu", "", 1)
    assert ours == theirs == TvmTarget("llvm", "znver4", "x86_64-linux-gnu")


def test_this_machine_is_a_target() -> None:
    target = find_local_target(1)
    assert target.kind in ("llvm", "cuda")
    assert target.to_tvm().kind.name == target.kind


@pytest.mark.parametrize(
    ("kind", "threads", "message"), [("metal", 1, "metal"), ("llvm", 0, "threads must be >= 1")]
)
def test_refuses_impossible_targets(kind: str, threads: int, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TvmTarget(kind, "znver4", "x86_64-linux-gnu", "", threads)
