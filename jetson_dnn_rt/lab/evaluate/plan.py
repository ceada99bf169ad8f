"""The tasks of an evaluation, loaded; and what is decided once, so that all workers do the same.

Some things about a task are chosen by measuring: the variant where none is named, the number of
stages where it is 0, and how many of them a back end does with one run. Another choice can give
other bits. `fix_task` makes the choice once and writes it into the task, for every chunk, worker
and repetition.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.config.task import NO_CACHE, TaskConfig
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.lab.evaluate.chunk import TaskSpec
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.runtime.task import BatchKey, Task
from jetson_dnn_rt.variants.running.pipeline import Pipeline

RUNS = "runs"
"""Key of a fixed task's values: for each variant with how many runs it takes the network."""

_PREPROCESSING = "preprocessing"


def make_config(spec: TaskSpec) -> TaskConfig:
    """A task's configuration; by default one thread computes, and no library is looked at.

    The kind of the network is recognised where the values do not say it.
    """
    values: dict[str, Any] = {"kind": "", "threads": 1, "engine_cache": NO_CACHE, **spec.values}
    values.pop(RUNS, None)
    chosen = values.pop(_PREPROCESSING, {})
    values |= {f"preprocess_{name}": value for name, value in chosen.items()}
    return TaskConfig(spec.name, model=spec.model, variants=spec.variants, **values)


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


class OpenTask(Task):
    """A task with its variants, not warmed up; close it, or use it in a ``with`` statement.

    Parameters
    ----------
    spec : TaskSpec
        Which model, which variants.
    clock : Clock, optional
        What null models wait on.
    lenient : bool
        Leave out variants that are not to be had; else that is an error: a chunk without one of
        its variants would be a hole in the result.
    find_like : callable
        As that of `Task`.

    Raises
    ------
    ConfigurationError, ModelError, BackendUnavailableError
        When the model or a variant cannot be used; the text begins with the task's name.
    """

    def __init__(
        self,
        spec: TaskSpec,
        clock: Clock | None = None,
        *,
        lenient: bool = False,
        find_like: Callable[[BatchKey], Task | None] = lambda key: None,
    ) -> None:
        self.spec = spec
        config = make_config(spec)
        try:
            super().__init__(
                config,
                threads=max(1, config.fixed_threads),
                clock=clock or SteadyClock(),
                find_like=find_like,
                frames=(),
                runs=spec.values.get(RUNS),
            )
        except JetsonDnnRtError as error:
            raise type(error)(f"{spec.name}: {error}") from error
        if self.left_out and not lenient:
            self.close()
            raise ConfigurationError(f"{spec.name}: {next(iter(self.left_out.values()))}")

    @property
    def pipelines(self) -> dict[str, Pipeline]:
        """By variant, the first runs first."""
        return self.variants.pipelines

    def fix(self) -> FixedTask:
        """The task with all that was chosen when it was loaded: the same wherever it is loaded."""
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
