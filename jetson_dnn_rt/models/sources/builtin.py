"""The detector and the segmenter that come with the package."""

from __future__ import annotations

from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.model import Opened, SourceOptions
from jetson_dnn_rt.models.sources.files import hash_state
from jetson_dnn_rt.models.sources.torch import TorchOrigin


def open_source(name: str, options: SourceOptions) -> Opened:
    """Load a network of `jetson_dnn_rt.demo.builtin`."""
    if name not in builtin.NAMES:
        raise ConfigurationError(f"builtin:{name} is unknown, known are {builtin.NAMES}")
    size = builtin.INPUT_SIZE[name]
    if options.input_size not in (None, size):
        raise ConfigurationError(f"builtin:{name} takes {size[0]}x{size[1]} only")
    module = builtin.load(name)
    return Opened(
        TorchOrigin.of_module(f"builtin:{name}", module, size),
        hash_state(module.state_dict(), f"builtin:{name}"),
        size,
        Preprocessing(*size),
        builtin.labels(name),
    )
