"""Several variants of one model, built and ready."""

from __future__ import annotations

from collections.abc import Sequence

from jetson_dnn_rt.backends.registry import is_installed
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.null_source import NullOrigin
from jetson_dnn_rt.models.settings import DecoderSettings
from jetson_dnn_rt.variants.pipeline import Pipeline, build_pipeline
from jetson_dnn_rt.variants.spec import VariantSpec

# The fastest on a CPU first, as measured with YOLOX-nano on two x86 cores.
_PREFERENCE = ("openvino", "onnxruntime", "torch")


def choose_default(model: Model) -> VariantSpec:
    """The variant of a task whose user names none.

    ``full`` in fp32 on the first back end that is installed of OpenVINO, ONNX Runtime and
    torch; for a ``null:`` model the null back end.

    Raises
    ------
    BackendUnavailableError
        When none is installed.
    """
    if isinstance(model.origin, NullOrigin):
        return VariantSpec("full", "null")
    for backend in _PREFERENCE:
        if is_installed(backend):
            return VariantSpec("full", backend)
    raise BackendUnavailableError(f"no back end is installed: pip install {_PREFERENCE[0]}")


class VariantSet:
    """The variants of one task. Nothing that changes is shared between them or with other sets.

    Parameters
    ----------
    model : Model
        The network.
    names : sequence of str
        Names of variants, the first is the default; empty = `choose_default`.
    settings : DecoderSettings
        Thresholds of the task, the same for all its variants.
    threads : int
        Threads of one inference, >= 1.
    clock : Clock, optional
        What the null back end waits on.

    Attributes
    ----------
    pipelines : dict of str to Pipeline
        By full name, in the order given.
    default : str
        Name of the first.

    Raises
    ------
    ConfigurationError
        When a name is none, or there twice.
    BackendUnavailableError, ModelError
        When one of them cannot be built; those built before are closed.
    """

    def __init__(
        self,
        model: Model,
        names: Sequence[str],
        settings: DecoderSettings,
        *,
        threads: int,
        clock: Clock | None = None,
    ) -> None:
        specs = [VariantSpec.parse(name) for name in names] or [choose_default(model)]
        if len(set(map(str, specs))) != len(specs):
            raise ConfigurationError(f"variants: a name is there twice: {list(map(str, specs))}")
        self.model = model
        self.pipelines: dict[str, Pipeline] = {}
        try:
            for spec in specs:
                self.pipelines[str(spec)] = build_pipeline(
                    model, spec, settings, threads=threads, clock=clock
                )
        except BaseException:
            self.close()
            raise
        self.default = str(specs[0])

    def close(self) -> None:
        """Close every pipeline; a second call does nothing."""
        for pipeline in self.pipelines.values():
            pipeline.close()
