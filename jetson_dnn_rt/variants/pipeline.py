"""The stages of one task in one variant: preprocess, inference, decode."""

from __future__ import annotations

from typing import cast

from jetson_dnn_rt.backends.base import Outputs, Runner
from jetson_dnn_rt.backends.null import NullRunner
from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.preprocessing import Geometry, Preprocessor
from jetson_dnn_rt.models.settings import DecoderSettings
from jetson_dnn_rt.tasks import Stage, Work
from jetson_dnn_rt.variants.spec import VariantSpec

STAGE_NAMES = ("preprocess", "inference", "decode")

_GEOMETRY = "geometry"
_OUTPUTS = "outputs"


class Pipeline:
    """What a task runs for each frame, with all the memory it needs.

    The frame's pixels are read once, by the preprocessor, which writes into the runner's own
    input buffer. The result owns its arrays; everything between belongs to the pipeline and is
    written over by the next frame. One frame at a time.

    Parameters
    ----------
    model : Model
        The network.
    spec : VariantSpec
        How it runs.
    runner : Runner
        Made for both; the pipeline closes it.
    settings : DecoderSettings
        Read anew for every frame.
    """

    def __init__(
        self, model: Model, spec: VariantSpec, runner: Runner, settings: DecoderSettings
    ) -> None:
        self.spec = spec
        self.runner = runner
        self._settings = settings
        self._preprocessor = Preprocessor(model.preprocessing, runner.input)
        self._decode = model.create_decoder()
        self._script = runner if isinstance(runner, NullRunner) else None
        self.stages = (
            Stage("preprocess", self._run_preprocess),
            Stage("inference", self._run_inference),
            Stage("decode", self._run_decode),
        )

    def _run_preprocess(self, work: Work) -> None:
        work.scratch[_GEOMETRY] = self._preprocessor.write(work.frame)
        if self._script is not None:
            self._script.take_time("preprocess")

    def _run_inference(self, work: Work) -> None:
        work.scratch[_OUTPUTS] = self.runner.run()

    def _run_decode(self, work: Work) -> None:
        outputs = cast(Outputs, work.scratch[_OUTPUTS])
        geometry = cast(Geometry, work.scratch[_GEOMETRY])
        work.result = self._decode(outputs, geometry, self._settings)
        if self._script is not None:
            self._script.take_time("decode")

    def run(self, work: Work) -> None:
        """Run all stages in turn, for those that schedule nothing."""
        for stage in self.stages:
            stage.run(work)

    def close(self) -> None:
        """Give the runner back; a second call does nothing."""
        self.runner.close()


def build_pipeline(
    model: Model,
    spec: VariantSpec,
    settings: DecoderSettings,
    *,
    threads: int,
    clock: Clock | None = None,
) -> Pipeline:
    """Make the stages of a model in a variant.

    Parameters
    ----------
    model : Model
        The network.
    spec : VariantSpec
        How it is to run.
    settings : DecoderSettings
        Thresholds, which the caller may change at any time.
    threads : int
        Threads of one inference, >= 1.
    clock : Clock, optional
        What the null back end waits on; the steady clock by default.

    Raises
    ------
    BackendUnavailableError
        When the variant cannot be had on this machine or in this release.
    ModelError
        When the back end cannot run the network.
    """
    if spec.decomposition != "full":
        raise BackendUnavailableError(
            f"variant {spec}: decomposition {spec.decomposition} is not in this release; use full"
        )
    runner = create_runner(model, spec.backend, spec.precision, threads=threads, clock=clock)
    try:
        return Pipeline(model, spec, runner, settings)
    except BaseException:
        runner.close()
        raise
