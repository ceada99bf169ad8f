"""Loads a task's model, builds its variants and measures them, before any frame comes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.executor.executor import Stages
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.settings import DecoderSettings
from jetson_dnn_rt.models.sources import load_model
from jetson_dnn_rt.nodes.task_parameters import TaskNodeParameters
from jetson_dnn_rt.variants.spec import VariantSpec
from jetson_dnn_rt.variants.timing import measure_stages
from jetson_dnn_rt.variants.variant_set import VariantSet


class LoadedTask:
    """A model with its variants, warmed up.

    Parameters
    ----------
    parameters : TaskNodeParameters
        Which model and which variants.
    size : tuple of int
        Height and width of the frames that will come.
    workers : int
        Workers of the executor, which share the cores.
    clock : Clock
        Measures, and paces null models.
    log : callable
        Takes a line per step: building may take long.

    Raises
    ------
    ModelError, ConfigurationError, BackendUnavailableError
        When the model or a variant cannot be used.
    """

    def __init__(
        self,
        parameters: TaskNodeParameters,
        size: tuple[int, int],
        *,
        workers: int,
        clock: Clock,
        log: Callable[[str], None],
    ) -> None:
        self._parameters, self._clock = parameters, clock
        self.threads = count_threads(parameters, workers)
        self.settings = DecoderSettings()
        self.apply_thresholds(parameters)
        self.model: Model = load_task_model(parameters)
        self._variants = self._build()
        try:
            self.warm_up_times_ns = self._warm_up(size, log)
        except BaseException:
            self._variants.close()
            raise

    @property
    def variant_names(self) -> tuple[str, ...]:
        """Full names of the variants, the default first."""
        return tuple(self._variants.pipelines)

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Names of the stages."""
        return self._variants.stage_names

    @property
    def stages(self) -> Stages:
        """The stages of every variant."""
        return {name: p.stages for name, p in self._variants.pipelines.items()}

    def resolve_variant(self, name: str) -> str:
        """Full name of a loaded variant; empty = the default.

        Raises
        ------
        ConfigurationError
            When it is not among those loaded.
        """
        if not name:
            return self._variants.default
        full = str(VariantSpec.parse(name))
        if full not in self._variants.pipelines:
            raise ConfigurationError(
                f"variant must be one of {', '.join(self.variant_names)}: {name!r}; others must "
                "be listed in `variants` before the node is configured"
            )
        return full

    def apply_thresholds(self, parameters: TaskNodeParameters) -> None:
        """Let the next frame be decoded with these thresholds."""
        apply_thresholds(self.settings, parameters)

    def rebuild(self) -> Stages:
        """Build everything anew after a stage hung; the old pipelines may still be in use."""
        self._variants = self._build()
        return self.stages

    def close(self) -> None:
        """Give the memory back."""
        self._variants.close()

    def _build(self) -> VariantSet:
        return VariantSet(
            self.model,
            self._parameters.variants,
            self.settings,
            threads=self.threads,
            clock=self._clock,
        )

    def _warm_up(
        self, size: tuple[int, int], log: Callable[[str], None]
    ) -> dict[str, list[tuple[int, ...]]]:
        frame = Frame(
            image=np.full((*size, 3), 114, np.uint8), encoding="bgr8", stamp_ns=0, sequence=0
        )
        times: dict[str, list[tuple[int, ...]]] = {}
        for name, pipeline in self._variants.pipelines.items():
            begin_ns = time.monotonic_ns()
            try:
                runs = measure_stages(
                    pipeline.stages, [frame], self._parameters.warmup_runs, self._clock
                )
            except Exception as error:
                raise ModelError(f"variant {name} fails on its warm-up frame: {error}") from error
            times[name] = runs
            median_ms = sorted(sum(run) for run in runs)[len(runs) // 2] / 1e6 if runs else 0.0
            seconds = (time.monotonic_ns() - begin_ns) / 1e9
            log(
                f"variant {name}: {median_ms:.2f} ms (median of {len(runs)} runs at "
                f"{size[1]}x{size[0]}), warmed up in {seconds:.1f} s"
            )
        return times


def load_task_model(parameters: TaskNodeParameters) -> Model:
    """Load the model that a task's parameters name; the errors of `load_model`."""
    labels = parameters.labels
    return load_model(
        parameters.model,
        kind=parameters.kind,  # type: ignore[arg-type]  # checked by its choices
        head=parameters.head,
        labels=labels[0] if len(labels) == 1 else labels or None,
        input_size=parameters.input_size or None,  # type: ignore[arg-type]
        weights=parameters.weights,
        preprocessing=parameters.preprocessing() or None,
    )


def apply_thresholds(settings: DecoderSettings, parameters: TaskNodeParameters) -> None:
    """Take a task's thresholds over."""
    settings.confidence = parameters.confidence_threshold
    settings.nms_iou = parameters.nms_iou_threshold
    settings.max_detections = parameters.max_detections


def count_threads(parameters: TaskNodeParameters, workers: int) -> int:
    """Threads of one inference: what is asked for, else the cores shared by the workers."""
    return parameters.threads or max(1, len(os.sched_getaffinity(0)) // workers)
