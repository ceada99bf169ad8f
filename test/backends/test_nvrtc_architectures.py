# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The input pass compiled for the devices of Jetsons and an H100, and what it takes of them.

No device is needed: NVRTC and cuobjdump are wheels of PyPI. CUDA 12 compiles for Xavier, which 13
has left out; 13 compiles for Thor, which 12 does not know.
"""

# Without the annotations of __future__: under pytest 6, which Ubuntu 22.04 has, no dataclass could
# look its module up.

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from jetson_dnn_rt.backends.cuda import input as cuda_input
from jetson_dnn_rt.backends.cuda.nvrtc import Nvrtc, open_libraries
from jetson_dnn_rt.errors import BackendUnavailableError


@dataclass(frozen=True)
class Device:
    """Limits of a multiprocessor: CUDA C++ Programming Guide, table of compute capabilities."""

    name: str
    cudas: tuple[int, ...]  # major versions whose NVRTC compiles for it
    warps: int  # resident at most
    blocks: int  # resident at most

    # The same on all four.
    REGISTERS = 65536
    REGISTERS_AT_ONCE = 256  # given to a warp
    WARP = 32

    def occupancy(self, registers: int, threads: int) -> float:
        """Share of the warps that can be resident with so many registers a thread."""
        warps_of_block = threads // self.WARP
        of_warp = -(-registers * self.WARP // self.REGISTERS_AT_ONCE) * self.REGISTERS_AT_ONCE
        limits = (self.REGISTERS // of_warp // warps_of_block, self.warps // warps_of_block)
        return min(*limits, self.blocks) * warps_of_block / self.warps


DEVICES = {
    72: Device("Jetson Xavier", (12,), warps=64, blocks=32),
    87: Device("Jetson Orin", (12, 13), warps=48, blocks=16),
    90: Device("H100", (12, 13), warps=64, blocks=32),
    110: Device("Jetson Thor", (13,), warps=48, blocks=24),
}
# The pass waits for memory: half of the warps hide that. It is launched in blocks of 256 threads.
LEAST_OCCUPANCY = 0.5


def test_occupancy_is_that_of_nvidias_calculator():
    """Values of the CUDA occupancy calculator for 256 threads."""
    orin, hopper = DEVICES[87], DEVICES[90]
    assert orin.occupancy(40, 256) == 1.0
    assert orin.occupancy(48, 256) == pytest.approx(40 / 48)
    assert hopper.occupancy(32, 256) == 1.0
    assert hopper.occupancy(33, 256) == 0.75
    assert hopper.occupancy(255, 256) == 0.125


def open_compiler(cuda, architecture):
    """NVRTC of a CUDA version."""
    for library in open_libraries():
        try:
            found = Nvrtc(library)
            if found.version[0] == cuda and architecture in found.architectures():
                return found
        except (BackendUnavailableError, AttributeError):
            continue  # not NVRTC, or too old
    wheel = {12: "'nvidia-cuda-nvrtc-cu12<12.7'", 13: "nvidia-cuda-nvrtc"}[cuda]
    pytest.skip(f"no NVRTC of CUDA {cuda} that knows sm_{architecture}: pip install {wheel}")


def find_cuobjdump():
    package = find_spec("nvidia")
    for folder in package.submodule_search_locations if package is not None else ():
        for path in sorted(Path(folder).glob("*/bin/cuobjdump")):
            return str(path)
    if found := shutil.which("cuobjdump"):
        return found
    pytest.skip("there is no cuobjdump: pip install nvidia-cuda-cuobjdump")


def read_usage(image, folder):
    """Registers of a thread, bytes of stack and of local memory, from the code for the device."""
    file = folder / "input_pass.cubin"
    file.write_bytes(image)
    command = [find_cuobjdump(), "-res-usage", str(file)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(rf"Function {cuda_input.NAME}:\s+(.+)", text)
    assert found, text
    usage = dict(re.findall(r"(\w+):(\d+)", found[1]))
    return tuple(int(usage[name]) for name in ("REG", "STACK", "LOCAL"))


@pytest.mark.parametrize(
    ("architecture", "cuda"),
    [(architecture, cuda) for architecture in DEVICES for cuda in DEVICES[architecture].cudas],
)
def test_registers_and_spills(architecture, cuda, tmp_path, record_property):
    """Nothing is spilled, and enough warps fit for a pass that waits for memory.

    Spilled registers would be in the stack frame.
    """
    device = DEVICES[architecture]
    compiler = open_compiler(cuda, architecture)
    source = cuda_input.SOURCE.read_text(encoding="utf-8")
    capability = divmod(architecture, 10)
    image = compiler.compile(source, cuda_input.SOURCE.name, capability)
    assert image.startswith(b"\x7fELF")
    registers, stack, local = read_usage(image, tmp_path)
    threads = cuda_input.BLOCK[0] * cuda_input.BLOCK[1] * cuda_input.BLOCK[2]
    occupancy = device.occupancy(registers, threads)
    version = ".".join(map(str, compiler.version))
    row = (
        f"sm_{architecture} ({device.name}), NVRTC {version}: {registers} registers, "
        f"{stack + local} bytes spilled, {occupancy:.0%} of the warps resident"
    )
    print(row)
    record_property("usage", row)
    assert (stack, local) == (0, 0), row
    assert occupancy >= LEAST_OCCUPANCY, row


def test_a_kernel_that_spills_is_seen(tmp_path):
    """128 values are kept where blocks of 1024 threads leave 64 registers to each."""
    compiler = open_compiler(12, 87)
    source = f"""
    extern "C" __global__ void __launch_bounds__(1024) {cuda_input.NAME}(float *values)
    {{
        float kept[128];
        #pragma unroll
        for (int i = 0; i < 128; ++i) kept[i] = values[i * 1024 + threadIdx.x];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 128; ++i) values[i * 1024 + 1023 - threadIdx.x] = kept[i];
    }}
    """
    registers, stack, _ = read_usage(compiler.compile(source, "spilling.cu", (8, 7)), tmp_path)
    assert registers <= 64
    assert stack > 0


def test_the_wheel_of_cuda_13_compiles_without_torch():
    """Its NVRTC does not look for its built-in functions in its own folder."""
    open_compiler(13, 110)
    program = (
        "import sys\n"
        "from jetson_dnn_rt.backends.cuda.nvrtc import Nvrtc, open_libraries\n"
        "for library in open_libraries():\n"
        "    if hasattr(library, 'nvrtcVersion') and Nvrtc(library).version[0] == 13:\n"
        "        image = Nvrtc(library).compile('__global__ void f() {}', 'f.cu', (8, 7))\n"
        "        assert image.startswith(b'\\x7fELF')\n"
        "        assert 'torch' not in sys.modules\n"
        "        print('compiled')\n"
        "        break\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert answer.stdout == "compiled\n", answer.stderr
