"""The networks of paper 003 and the built-in ones, and how the time to tune is shared out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from jetson_dnn_rt.demo.builtin import BuiltinName
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs

SIZE = (224, 224)
FRAMES = 4
PRECISIONS = ("fp32", "fp16")

Load = Callable[[], tuple[Model, list[Frame]]]


@dataclass(frozen=True)
class Network:
    """A network of the table.

    Attributes
    ----------
    load : callable
        Makes the model, and frames that it is shown.
    shares : mapping of str to float
        Of the time to tune, by precision.
    barred : bool
        Whether it must reach the bars of speed.
    builtin : str or None
        ``detector`` or ``segmenter`` where there is ground truth.
    """

    load: Load
    shares: Mapping[str, float]
    barred: bool = False
    builtin: BuiltinName | None = None


def load_torchvision(name: str) -> tuple[Model, list[Frame]]:
    """A network of torchvision at 224 x 224, with random weights that compute as trained ones."""
    from benchmarks.plausible_weights import make_plausible

    frames = list(open_frames("synthetic", FRAMES))
    model = load_model(f"torchvision:{name}", weights="none", input_size=SIZE)
    return make_plausible(model, prepare_inputs(model, frames)), frames


def load_builtin(name: str) -> tuple[Model, list[Frame]]:
    """A built-in network, trained, at its own size."""
    return load_model(f"builtin:{name}"), list(open_frames("synthetic", FRAMES))


def _shares(fp32: float, fp16: float) -> dict[str, float]:
    return dict(zip(PRECISIONS, (fp32, fp16), strict=True))


# Those with bars are tuned first; the last one has by far the most kernels.
NETWORKS = {
    "mobilenet_v2": Network(
        partial(load_torchvision, "mobilenet_v2"), _shares(0.20, 0.04), barred=True
    ),
    "detector": Network(
        partial(load_builtin, "detector"), _shares(0.12, 0.04), barred=True, builtin="detector"
    ),
    "segmenter": Network(
        partial(load_builtin, "segmenter"), _shares(0.10, 0.04), barred=True, builtin="segmenter"
    ),
    "resnet50": Network(partial(load_torchvision, "resnet50"), _shares(0.13, 0.04)),
    "efficientnet_v2_s": Network(
        partial(load_torchvision, "efficientnet_v2_s"), _shares(0.17, 0.12)
    ),
}
