"""Ways from an image message to the input on a CUDA device.

`pageable`, `pinned` and `mapped` are the memory that the pass on the CPU writes the input into: it
is copied to the device by the driver, fetched by the device, or read there in place. For
`pinned_frame` and `mapped_frame` the camera's frame lies in such memory, and the device does the
pass itself. A way ends when the first layer could begin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.tables import say
from benchmarks.zero_copy.ways import Way, make_message
from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.backends.cuda.device import Cuda, regions
from jetson_dnn_rt.backends.cuda.driver import Kernel
from jetson_dnn_rt.backends.cuda.input import DevicePreprocessor, load_kernel
from jetson_dnn_rt.backends.cuda.owners import open_cuda
from jetson_dnn_rt.cameras.image_messages import view_image
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.input.preprocessing import Preprocessing

PAGEABLE, PINNED, MAPPED = "pageable", "pinned", "mapped"
PINNED_FRAME, MAPPED_FRAME = "pinned_frame", "mapped_frame"


def make_ways(
    preprocessing: Preprocessing, height: int, width: int, encoding: str
) -> dict[str, Way]:
    """Make the ways that end on the device; `BackendUnavailableError` when there is none."""
    cuda = open_cuda()
    shape = (1, 3, preprocessing.height, preprocessing.width)
    frame = view_image(make_message(encoding, height, width), 0)
    ways = {
        PAGEABLE: _make_copied(preprocessing, cuda, np.zeros(shape, np.float32), frame),
        PINNED: _make_copied(preprocessing, cuda, cuda.allocate_host(shape, np.float32), frame),
    }
    mapped = cuda.properties().maps_host_memory
    if mapped:
        ways[MAPPED] = _make_mapped(preprocessing, cuda, frame)
    try:
        kernel = load_kernel()
    except BackendUnavailableError as error:
        say(f"zero-copy: the device does not convert frames: {error}")
        return ways
    ways[PINNED_FRAME] = _make_on_device(preprocessing, kernel, frame, fetched=True)
    if mapped:
        ways[MAPPED_FRAME] = _make_on_device(preprocessing, kernel, frame, fetched=False)
    return ways


def _make_copied(
    preprocessing: Preprocessing, cuda: Cuda, host: npt.NDArray[np.float32], frame: Frame
) -> Way:
    there = cuda.allocate(host.shape, np.float32)
    preprocessor = Preprocessor(preprocessing, host)

    def run(message: Any) -> Array:
        preprocessor.write(view_image(message, 0))
        cuda.copy(there, host)
        cuda.synchronize()
        return there

    return Way(run, _count_bytes(preprocessor, frame) + host.nbytes)


def _make_mapped(preprocessing: Preprocessing, cuda: Cuda, frame: Frame) -> Way:
    host = cuda.allocate_mapped((1, 3, preprocessing.height, preprocessing.width), np.float32)
    there = cuda.view(regions.find(host), host.shape, np.float32)
    preprocessor = Preprocessor(preprocessing, host)

    def run(message: Any) -> Array:
        preprocessor.write(view_image(message, 0))
        return there

    return Way(run, _count_bytes(preprocessor, frame))


def _count_bytes(preprocessor: Preprocessor, frame: Frame) -> int:
    preprocessor.write(frame)
    return preprocessor.written_bytes + preprocessor.scratch_bytes


def _make_on_device(
    preprocessing: Preprocessing, kernel: Kernel, frame: Frame, *, fetched: bool
) -> Way:
    """The camera's frame lies there already: the message is ignored."""
    cuda = open_cuda()
    image = cuda.allocate_mapped(frame.image.shape, np.uint8)
    image[:] = frame.image
    lying = Frame(image, frame.encoding, 0, 0, device_address=regions.find(image))
    shape = (1, 3, preprocessing.height, preprocessing.width)
    there, keep = _allocate_input(cuda, shape, fetched=fetched)
    device = DevicePreprocessor(preprocessing, there, cuda, kernel, fetched=fetched)

    def run(message: Any) -> Array:
        device.write(lying)
        keep()
        return there

    run(None)
    return Way(run, device.written_bytes)


def _allocate_input(
    cuda: Cuda, shape: tuple[int, ...], *, fetched: bool
) -> tuple[Array, Callable[[], object]]:
    """The device's own memory, or mapped memory; the callable keeps it alive."""
    if fetched:
        there = cuda.allocate(shape, np.float32)
        return there, lambda: there
    host = cuda.allocate_mapped(shape, np.float32)
    return cuda.view(regions.find(host), shape, np.float32), lambda: host
