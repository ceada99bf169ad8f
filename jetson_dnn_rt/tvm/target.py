# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""TVM's release, and its compilation targets: a CPU by LLVM's name, or a CUDA device."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError

if TYPE_CHECKING:
    import tvm

TVM_VERSION, TVM_FFI_VERSION = "0.27.0.post1", "0.1.14.post1"
"""Tested together: with apache-tvm-ffi 0.1.15 the same TVM crashes while it tunes."""

TUNING_PACKAGES = {
    "cloudpickle": "cloudpickle",
    "psutil": "psutil",
    "tornado": "tornado",
    "xgboost": "xgboost-cpu",
}
"""Import name -> wheel of the additional packages that tuning imports."""

TVM_FIX = (
    f"pip install apache-tvm=={TVM_VERSION} apache-tvm-ffi=={TVM_FFI_VERSION} "
    f"{' '.join(TUNING_PACKAGES.values())} jinja2 (the extra tvm of this package)"
)

_TRIPLES = {"x86-64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")

JETSON_CPUS = {"sm_72": "carmel", "sm_87": "cortex-a78ae"}
"""CPU cores of a Jetson, by the GPU's architecture: Xavier, Orin."""

# Limits of MetaSchedule's thread blocks; the same on every device from Volta on.
_CUDA_LIMITS = {
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}


@dataclass(frozen=True)
class TvmTarget:
    """Target of tuning and compilation; equal targets have the same kernels."""

    kind: str  # "llvm" or "cuda"
    cpu: str  # LLVM's name, with CUDA of the host's: znver4, cortex-a78ae
    triple: str  # LLVM's name of the platform: x86_64-linux-gnu
    arch: str = ""  # of the CUDA device, "sm_87"; else empty
    # of one kernel, >= 1; with 1 there are no parallel loops: it runs on its caller's thread
    threads: int = 1

    @property
    def text(self) -> str:
        """The target in one line, for library keys and messages."""
        words = [self.kind, self.arch, self.triple, self.cpu, f"threads={self.threads}"]
        return " ".join(word for word in words if word)

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``."""
        return "cuda" if self.kind == "cuda" else "cpu"

    def to_tvm(self) -> tvm.target.Target:
        """TVM's own target; raises `ConfigurationError` when its LLVM does not know the CPU."""
        import tvm

        described: dict[str, Any] = {"kind": "llvm", "mtriple": self.triple, "mcpu": self.cpu}
        described["num-cores"] = self.threads
        if self.kind == "cuda":
            described = {"kind": "cuda", "arch": self.arch, **_CUDA_LIMITS, "host": described}
        try:
            return tvm.target.Target(described)
        except Exception as error:  # TVM's errors have no class in common
            raise ConfigurationError(
                f"TVM does not know the target {self.text}: {error}"
            ) from error


def find_local_target(threads: int) -> TvmTarget:
    """Target of this machine: its CUDA device where TVM was built with CUDA, else its CPU.

    Raises `BackendUnavailableError` when TVM was built without LLVM.
    """
    import tvm

    find_cpu = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    find_triple = tvm.get_global_func("target.llvm_get_system_triple", allow_missing=True)
    if find_cpu is None or find_triple is None:
        raise BackendUnavailableError(
            "this TVM was built without LLVM and compiles nothing: pip install apache-tvm"
        )
    return make_target(str(find_cpu()), str(find_triple()), find_cuda_arch(), threads)


def make_target(cpu: str, triple: str, arch: str, threads: int) -> TvmTarget:
    """Make a target from LLVM's names of a machine, and of its CUDA device if it is used."""
    # The vendor in the middle differs between builds of LLVM, not between machines.
    machine = triple.split("-")[0]
    return TvmTarget("cuda" if arch else "llvm", cpu, f"{machine}-linux-gnu", arch, threads)


def find_cuda_arch() -> str:
    """``sm_87`` of the first CUDA device; empty where TVM cannot use one."""
    import tvm

    if not tvm.runtime.enabled("cuda"):
        return ""
    return read_arch(tvm.cuda(0))


def read_arch(device: Any) -> str:
    """``sm_87`` of TVM's CUDA device; empty where there is none."""
    return f"sm_{str(device.compute_version).replace('.', '')}" if device.exist else ""


def parse_target(text: str, threads: int) -> TvmTarget:
    """Read ``x86-64:znver4``, ``aarch64:cortex-a78ae`` or ``cuda:sm_87``.

    The host of a CUDA device is assumed to be a Jetson for ``sm_72`` and ``sm_87``, else this
    machine. Raises `ConfigurationError` when it is none of these.
    """
    family, _, name = text.partition(":")
    if not _NAME.fullmatch(name) or (family != "cuda" and family not in _TRIPLES):
        raise ConfigurationError(
            f"TVM target {text!r} is unknown: give x86-64:CPU, aarch64:CPU with LLVM's name of "
            "the CPU, or cuda:sm_NN"
        )
    if family != "cuda":
        return TvmTarget("llvm", name, _TRIPLES[family], "", threads)
    if not re.fullmatch(r"sm_[0-9]{2,3}a?", name):
        raise ConfigurationError(f"TVM target {text!r}: the device must be like sm_87")
    if name in JETSON_CPUS:
        return TvmTarget("cuda", JETSON_CPUS[name], _TRIPLES["aarch64"], name, threads)
    local = find_local_target(threads)
    return TvmTarget("cuda", local.cpu, local.triple, name, threads)
