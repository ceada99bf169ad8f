"""The tasks of an evaluation, loaded; and what is decided once, so that all workers do the same.

Some things about a task are chosen by measuring: the variant where none is named, the number of
stages where it is 0, and how many of them a back end does with one run. Another choice can give
other bits. `fix_task` makes the choice once and writes it into the task, for every chunk, worker
and repetition.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.lab.evaluate.chunk import TaskSpec
from jetson_dnn_rt.models.heads.base import DecoderSettings, Kind
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.running.variant_set import VariantSet

NO_CACHE = "none"
"""Value of `engine_cache` with which there is no library."""

RUNS = "runs"
"""Key of a fixed task's values: for each variant with how many runs it takes the network."""

DEFAULTS: Mapping[str, Any] = {
    "kind": None,
    "weights": "DEFAULT",
    "head": "auto",
    "labels": (),
    "input_size": (),
    "preprocessing": {},
    "threads": 1,
    "stages": 1,
    "finest_stages": False,
    "engine_cache": NO_CACHE,
    "amp_lists": "",
    "memory_limit_mb": 0.0,
    "confidence_threshold": 0.3,
    "nms_iou_threshold": 0.45,
    "max_detections": 100,
    "max_age_ms": 0.0,
    "budget_quantile": 0.99,
    "priority": 0,
    "warmup_runs": 20,
    "stage_timeout_ms": 2000.0,
}
"""What a task's values are where they are not given; as the parameters of the nodes, but nothing
is looked for in a library and one thread computes."""


@dataclass(frozen=True)
class FixedTask:
    """A task about which nothing is left to chance.

    Attributes
    ----------
    spec : TaskSpec
        With variants, stages and runs filled in.
    kind, labels, model_hash : str, tuple of str, str
        Of its model.
    stages : tuple of str
        Names of its stages, of all variants.
    left_out : dict of str to str
        Variants that were asked for and cannot run, and why.
    """

    spec: TaskSpec
    kind: Kind
    labels: tuple[str, ...]
    model_hash: str
    stages: tuple[str, ...]
    left_out: dict[str, str]


class OpenTask:
    """A task with its variants ready to run; close it, or use it in a ``with`` statement.

    Parameters
    ----------
    spec : TaskSpec
        Which model, which variants; its values are the parameters of a task node by the names of
        their fields, those that are missing have `DEFAULTS`.
    clock : Clock, optional
        What null models wait on.
    lenient : bool
        Leave out variants that are not to be had; else that is an error: a chunk without one of
        its variants would be a hole in the result.

    Attributes
    ----------
    model, settings : Model, DecoderSettings
        The network, and the thresholds of all its variants.
    library : Library or None
        Of what was built.
    pipelines : dict of str to Pipeline
        By variant, the first runs first.
    stage_names : tuple of str
        The same for all variants.

    Raises
    ------
    ConfigurationError, ModelError, BackendUnavailableError
        When the model or a variant cannot be used; the text begins with the task's name.
    """

    def __init__(
        self, spec: TaskSpec, clock: Clock | None = None, *, lenient: bool = False
    ) -> None:
        values = {**DEFAULTS, **spec.values}
        self.spec = spec
        self.library = _open_library(values["engine_cache"])
        self.settings = DecoderSettings(
            confidence=values["confidence_threshold"],
            nms_iou=values["nms_iou_threshold"],
            max_detections=values["max_detections"],
        )
        try:
            self.model: Model = _load(spec, values)
            self._variants = VariantSet(
                self.model,
                spec.variants,
                self.settings,
                threads=values["threads"],
                clock=clock or SteadyClock(),
                stages=values["stages"],
                library=self.library,
                memory_limit_mb=values["memory_limit_mb"],
                # Engines take minutes: `jetson-dnn-rt build` builds them, where they are kept.
                build=values["engine_cache"] == NO_CACHE,
                finest=values["finest_stages"],
                runs=values.get(RUNS),
                amp_lists=values["amp_lists"],
            )
        except JetsonDnnRtError as error:
            raise type(error)(f"{spec.name}: {error}") from error
        self.left_out = dict(self._variants.left_out)
        if self.left_out and not lenient:
            self.close()
            raise ConfigurationError(f"{spec.name}: {next(iter(self.left_out.values()))}")

    @property
    def pipelines(self) -> dict[str, Pipeline]:
        """What runs, by variant."""
        return self._variants.pipelines

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Of every variant."""
        return self._variants.stage_names

    @property
    def memory_bytes(self) -> int:
        """What the variants take together."""
        return self._variants.memory_bytes

    def fix(self) -> FixedTask:
        """What was chosen when it was loaded, as a task that is loaded the same everywhere."""
        runs = {name: len(pipeline.segments) for name, pipeline in self.pipelines.items()}
        stages = len(self.stage_names) - 2
        values = {**self.spec.values, "stages": stages, "memory_limit_mb": 0.0, RUNS: runs}
        return FixedTask(
            dataclasses.replace(self.spec, variants=tuple(self.pipelines), values=values),
            self.model.kind,
            self.model.labels,
            self.model.model_hash,
            self.stage_names,
            self.left_out,
        )

    def close(self) -> None:
        """Give the memory back; a second call does nothing."""
        self._variants.close()

    def __enter__(self) -> OpenTask:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def fix_task(spec: TaskSpec) -> FixedTask:
    """Load a task once and decide what its workers shall not decide each for itself.

    Can be run on a worker, where this machine has not what the task needs.

    Raises
    ------
    ConfigurationError, ModelError, BackendUnavailableError
        As those of `OpenTask`.
    """
    with OpenTask(spec, lenient=True) as task:
        return task.fix()


def _load(spec: TaskSpec, values: Mapping[str, Any]) -> Model:
    labels = values["labels"]
    return load_model(
        spec.model,
        kind=values["kind"],
        head=values["head"],
        labels=labels[0] if len(labels) == 1 else labels or None,
        input_size=values["input_size"] or None,
        weights=values["weights"],
        preprocessing=values["preprocessing"] or None,
    )


def _open_library(folder: str) -> Library | None:
    if folder == NO_CACHE:
        return None
    return Library(Path(folder) if folder else None)
