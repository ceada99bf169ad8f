"""Where frames and the input lie, for variants that run on a CUDA device."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.backends.cuda.device import regions
from jetson_dnn_rt.backends.cuda.input import DevicePreprocessor, load_kernel
from jetson_dnn_rt.backends.cuda.owners import open_cuda
from jetson_dnn_rt.backends.cuda.runner import CudaRunner
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.frames import Allocate, Image
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.variants.running.envelope import IMAGE, Envelope
from jetson_dnn_rt.variants.running.pipeline import Segment

logger = logging.getLogger(__name__)

ON_THE_CPU = "the CPU converts the frames, though there is a CUDA device"


def find_memory(segments: Sequence[Segment]) -> str:
    """Kind of the memory that the input of a variant lies in; empty without a CUDA device."""
    runner = segments[0].runner
    return runner.memory if isinstance(runner, CudaRunner) else ""


def adopt_image(segments: Sequence[Segment], image: npt.NDArray[np.float32]) -> None:
    """Let runners on a CUDA device read the input where it lies, if it is mapped.

    Raises
    ------
    ModelError
        When one cannot be run so.
    """
    for piece, runner in ((segment.piece, segment.runner) for segment in segments):
        if isinstance(runner, CudaRunner):
            for index, name in enumerate(piece.inputs):
                if name == IMAGE:
                    runner.adopt_input(index, image)


def read_frames_on_device(
    envelope: Envelope, segments: Sequence[Segment], preprocessing: Preprocessing
) -> Allocate | None:
    """Let the device convert camera frames, and make the memory that it reads them from.

    In mapped memory frames are read in place; in pinned memory the device fetches them. Without
    NVRTC the pass stays on the CPU, which is said.

    Parameters
    ----------
    envelope : Envelope
        Of the task.
    segments : sequence of Segment
        Of its default variant.
    preprocessing : Preprocessing
        What the network expects.

    Returns
    -------
    callable or None
        For the pool of the camera; None where frames are the CPU's.
    """
    runner = segments[0].runner
    memory = find_memory(segments)
    if not isinstance(runner, CudaRunner) or memory == "pageable":
        return None
    try:
        if memory == "mapped" and not regions.find(envelope.image):
            raise BackendUnavailableError("the input does not lie in mapped memory")
        kernel = load_kernel()
    except BackendUnavailableError as error:
        logger.warning("%s: %s", ON_THE_CPU, error)
        return None
    cuda = open_cuda()
    if memory == "pinned":
        there = runner.device_input(segments[0].piece.inputs.index(IMAGE))
        device = DevicePreprocessor(preprocessing, there, cuda, kernel, fetched=True)
        envelope.read_on_device(device)
    else:

        def find_there(image: npt.NDArray[np.float32]) -> Array:
            return cuda.view(regions.find(image), image.shape, np.float32)

        try:
            there = find_there(envelope.image)
        except Exception as error:  # torch's own
            logger.warning("%s: %s", ON_THE_CPU, " ".join(str(error).split()))
            cuda.close()
            return None
        device = DevicePreprocessor(preprocessing, there, cuda, kernel, fetched=False)
        envelope.read_on_device(device, find_there)

    def allocate(shape: tuple[int, ...]) -> tuple[Image, int]:
        # Of the process's, with no stream: it is there also when the task is gone.
        image = cuda.allocate_mapped(shape, np.uint8)
        return image, regions.find(image)

    return allocate
