"""Which memory is taken on which device, and where mapped memory is found."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from fake_cudart import FakeCudart

from jetson_dnn_rt.backends.cuda.device import (
    DeviceProperties,
    MappedRegions,
    address_of,
    choose_memory,
    regions,
)
from jetson_dnn_rt.backends.cuda.owners import PythonCuda
from jetson_dnn_rt.config.task import MEMORY_KINDS
from jetson_dnn_rt.errors import ConfigurationError

ORIN = DeviceProperties(integrated=True, maps_host_memory=True, capability=(8, 7))
TX2 = DeviceProperties(integrated=True, maps_host_memory=True, capability=(6, 2))
DISCRETE = DeviceProperties(integrated=False, maps_host_memory=True, capability=(9, 0))
UNMAPPED = DeviceProperties(integrated=False, maps_host_memory=False, capability=(9, 0))


@pytest.mark.parametrize(
    ("properties", "kind"),
    [(ORIN, "mapped"), (TX2, "pageable"), (DISCRETE, "pinned"), (UNMAPPED, "pinned")],
)
def test_the_device_decides(properties: DeviceProperties, kind: str) -> None:
    assert choose_memory("auto", properties) == kind


@pytest.mark.parametrize("kind", MEMORY_KINDS[1:])
def test_the_user_may_decide(kind: str) -> None:
    assert choose_memory(kind, TX2) == kind


def test_what_the_device_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="does not read host memory in place; use pinned"):
        choose_memory("mapped", UNMAPPED)
    with pytest.raises(ConfigurationError, match="memory must be one of auto, mapped"):
        choose_memory("managed", ORIN)


def test_a_region_is_known_with_its_views_until_it_is_gone() -> None:
    known = MappedRegions()
    memory = np.zeros((4, 8), np.float32)
    address = memory.ctypes.data
    known.add(memory, address, memory.nbytes, 0x1000)
    assert known.find(memory) == 0x1000
    assert known.find(memory[2]) == 0x1000 + 64
    assert known.find(np.zeros(3)) == 0
    view = memory[3:]
    del memory
    gc.collect()
    assert known.find(view) == 0x1000 + 96
    del view
    gc.collect()
    assert not known._regions


def test_mapped_memory_of_cuda_python() -> None:
    runtime = FakeCudart()
    cuda = PythonCuda(runtime)
    assert cuda.properties() == ORIN
    host = cuda.allocate_mapped((2, 3), np.float32)
    assert host.shape == (2, 3)
    assert not host.any()
    there = cuda.view(regions.find(host), (2, 3), np.float32)
    assert address_of(there) == regions.find(host) != 0
    host[1, 2] = 5.0
    copy = cuda.allocate_host((2, 3), np.float32)
    cuda.copy(copy, there)
    cuda.synchronize()
    np.testing.assert_array_equal(copy, host)
    assert regions.find(copy) == 0  # page-locked, not mapped
    view, address = host[1:], host.ctypes.data
    del host, there
    gc.collect()
    assert regions.find(view) == address + 12
    del view
    gc.collect()
    assert address not in runtime.memory
