# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Measurements of `profile` beyond the clocks, and the traces of all.

They run beside co-runners, layer by layer, with the PyTorch profiler, and in fresh processes.
Pieces that are already in the journal are not measured again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jetson_dnn_rt.coordinator.tables.tables import Integers
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError, naming
from jetson_dnn_rt.lab.profile.co_runners import (
    COHORT,
    CPU,
    GPU,
    MEMORY,
    CoRunners,
    measure_cohort,
    run_cohort,
    run_load,
)
from jetson_dnn_rt.lab.profile.cold_start import ColdSpec, ColdStart, start_cold
from jetson_dnn_rt.lab.profile.journal import ALONE, pack_runs, unpack_runs
from jetson_dnn_rt.lab.profile.profiling import CHUNK, ClockPoint, Key, ProfiledTask, Profiler
from jetson_dnn_rt.lab.profile.tables import (
    ProfileResult,
    make_measured_tables,
    make_predicted_tables,
)
from jetson_dnn_rt.lab.profile.target import COLD, LAYERS, OPERATORS, TRACE, TracedRun, write_trace
from jetson_dnn_rt.safety.records import read_record
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import TracedTask
from jetson_dnn_rt.variants.measuring.agreement import Agreement
from jetson_dnn_rt.variants.measuring.timing import TimedRun
from jetson_dnn_rt.variants.running.pipeline import Pipeline

LEAST_RUNS = 10  # at each point of a sample; a median of fewer is of no use

OpenPipeline = Callable[[ProfiledTask, contextlib.ExitStack], Pipeline]
"""Loads the first variant of a task once more, with memory of its own."""

PHASES = {
    CPU: "beside a load on every core",
    MEMORY: "beside copies of memory",
    GPU: "beside a load on the GPU",
    COHORT: "beside the cohort",
}


@dataclass(frozen=True, eq=False)
class Condition:
    """Measurements beside one kind of co-runner."""

    name: str  # ``cpu``, ``memory``, ``gpu``, ``cohort:N``
    times_ns: Mapping[Key, Integers]  # [frames, runs]
    load: Mapping[str, Any]  # ``count`` of co-runners, and the ``rate`` of their work in ``unit``


@dataclass(frozen=True, eq=False)
class LayerTimes:
    """The layers of a variant; stamps are around preprocessing, each layer, and decoding."""

    names: Sequence[str]
    operators: Sequence[str]
    clocks: str  # in words
    runs: Sequence[TimedRun]


class ProfileSession:
    """The measurements of one profile; layers, operators and cold starts where requested."""

    points: list[ClockPoint]  # in the order of measuring
    agreements: dict[Key, Agreement]  # with the full model
    result: ProfileResult  # the tables
    alone: Mapping[Key, Integers]  # [frames, runs], without co-runners, at the fastest clocks

    def __init__(self, profiler: Profiler, threads: int, folder: Path | None) -> None:
        self.profiler, self.tasks, self.platform = profiler, profiler.tasks, profiler.platform
        self.cohort: Sequence[float] = (1.0,)  # slow-down with 1, 2, ... tasks side by side
        self.conditions: list[Condition] = []
        self.layers: dict[Key, LayerTimes] = {}
        self.operators: dict[Key, dict[str, Any]] = {}
        self.cold: dict[Key, list[ColdStart]] = {}
        self.left_out: dict[Key, list[str]] = {}  # what failed, and why
        self._frames, self._journal = profiler.frames, profiler.journal
        self._clock, self._progress = profiler.clock, profiler.progress
        self._threads, self._folder = threads, folder

    def measure_tables(self, positions: Sequence[int] | None, runs: int, *, predict: bool) -> None:
        """Measure at clock configurations, by default the present one, and make the tables.

        With `predict` the configurations are a sample, from which all others are predicted.
        """
        self.agreements = self.profiler.compare()
        of_others = max(LEAST_RUNS, runs // 4) if predict else runs
        self.points = self.profiler.measure_points(positions, runs, of_others, need_first=predict)
        make = make_predicted_tables if predict else make_measured_tables
        self.result = make(self.profiler, self.points)
        fastest = int(self.result.clocks.indices[self.result.clocks.fastest])
        if positions is not None:
            self.platform.apply(fastest)
        at_fastest = (point for point in self.points if point.position == fastest)
        self.alone = next(at_fastest, self.points[0]).times_ns

    def measure_beside(
        self, kind: str, count: int, runs: int, open_pipeline: OpenPipeline
    ) -> None:
        """Measure all variants beside a kind of co-runner; `count` is the size of a cohort."""
        self._progress(PHASES[kind], 0, 1)
        name = f"{kind}:{count}" if kind == COHORT else kind

        def open_members(numbers: range, stack: contextlib.ExitStack) -> list[Pipeline]:
            return [open_pipeline(self.tasks[n % len(self.tasks)], stack) for n in numbers]

        def measure_slowdown() -> Sequence[float]:
            with contextlib.ExitStack() as stack:
                pipelines = open_members(range(count), stack)
                return measure_cohort(pipelines, self._frames, runs, self._clock, self._progress)

        if kind == COHORT:
            self.cohort = tuple(self._journal.remember(f"cohort|{count}", measure_slowdown))
        times_ns: dict[Key, Integers] = {}
        for number, task in enumerate(self.tasks):
            piece = f"load|{name}|{task.name}"
            with contextlib.ExitStack() as stack:
                beside = CoRunners(name, 0)
                if piece not in self._journal.pieces and kind == COHORT:
                    members = open_members(range(number + 1, number + count), stack)
                    beside = stack.enter_context(run_cohort(members, self._frames))
                elif piece not in self._journal.pieces:
                    beside = stack.enter_context(run_load(kind, self._threads))
                times_ns |= self.profiler.measure_times(runs, name, [task], beside.check)
            # The rate of its work is known after its end.
            load = self._journal.remember(piece, partial(_describe_load, beside))
        self.conditions.append(Condition(name, times_ns, load))

    def measure_layers(self, runs: int) -> None:
        """Time the layers of all variants that run layer by layer."""
        for key, task in self._list_keys():
            with self._leaving_out(key, "layers"):
                self.layers[key] = self._measure_layers(key, task, runs)

    def _measure_layers(self, key: Key, task: ProfiledTask, runs: int) -> LayerTimes:
        pieces, head = self._journal.pieces, "|".join(("layers", *key))
        counts = {f"{head}|{n}": min(CHUNK, runs - n) for n in range(0, runs, CHUNK)}
        missing = [piece for piece in counts if piece not in pieces]
        if missing or head not in pieces:
            from jetson_dnn_rt.lab.profile.layer_chain import make_layer_chain, run_layers

            phase, total = f"layers of {' '.join(key)}", CHUNK * len(missing)
            self._progress(phase, 0, total)
            chain = make_layer_chain(
                task.variants, key[1], threads=self._threads, clock=self._clock
            )
            known = {
                "names": [layer.name for layer in chain.layers],
                "operators": [layer.operators for layer in chain.layers],
                "clocks": self._describe_clocks(),
            }
            self._journal.put(head, known)
            for done, piece in enumerate(missing):
                self._progress(phase, CHUNK * done, total)
                taken = run_layers(chain, task.variants, self._frames, counts[piece], self._clock)
                self._journal.put(piece, pack_runs(taken))
        return LayerTimes(
            **pieces[head], runs=unpack_runs(row for piece in counts for row in pieces[piece])
        )

    def profile_operators(self, runs: int) -> None:
        """Run the PyTorch profiler over all variants that it supports."""
        from jetson_dnn_rt.lab.profile.operator_profile import profile_operators

        def measure(key: Key, pipeline: Pipeline) -> dict[str, Any]:
            self._progress(f"operators of {' '.join(key)}", 0, 1)
            file = None
            if self._folder is not None:
                with naming(self._folder):
                    (self._folder / OPERATORS).mkdir(exist_ok=True)
                file = self._folder / OPERATORS / f"{'-'.join(key)}.json"
            times = profile_operators(pipeline, self._frames, runs, file)
            return {
                "runs": runs,
                "file": None if file is None else str(file),
                "operators": [asdict(operator) for operator in times],
            }

        for key, task in self._list_keys():
            with self._leaving_out(key, "operators"):
                run = partial(measure, key, task.variants.pipelines[key[1]])
                piece = "|".join(("operators", *key))
                self.operators[key] = self._journal.remember(piece, run)

    def measure_cold(self, count: int, make_spec: Callable[[ProfiledTask, str], ColdSpec]) -> None:
        """Measure the first frames of fresh processes for all variants."""
        keys = list(self._list_keys())

        def measure(task: ProfiledTask, variant: str, done: int) -> dict[str, Any]:
            self._progress("cold starts", done, len(keys) * count)
            return asdict(start_cold(make_spec(task, variant), self._frames))

        for number, (key, task) in enumerate(keys):
            self.cold[key] = []
            for start in range(count):
                run = partial(measure, task, key[1], number * count + start)
                fields = self._journal.remember("|".join(("cold", *key, str(start))), run)
                self.cold[key].append(read_record(ColdStart, fields))

    def write_traces(self, folder: Path, parameters: Mapping[str, Any], limit_mb: int) -> None:
        """Write one trace for each condition, so that their times are never mixed.

        The limit applies to their sum; 0 = none.
        """
        from jetson_dnn_rt.traces.metadata import describe_run

        room = TraceRoom(limit_mb, ring=False)
        tasks = {task.name: _describe_task(task) for task in self.tasks}
        traces = [("", ALONE, "frames", self._list_runs(ALONE))]
        for name in (condition.name for condition in self.conditions):
            place = f"beside-{name.replace(':', '-')}"
            traces.append((place, name, "frames", self._list_runs(name)))
        if self.layers:
            traces.append((LAYERS, ALONE, "layers", self._list_layer_runs()))
        if self.cold:
            what = "first frames of fresh processes"
            traces.append((COLD, ALONE, what, self._list_cold_runs()))
        for place, interference, what, runs in traces:
            details = {**parameters, "interference": interference, "what": what}
            metadata = describe_run(
                "profile", tasks, platform=self.platform, parameters={"profile": details}
            )
            write_trace(folder / place / TRACE, runs, metadata, room)

    def _list_runs(self, condition: str) -> Iterator[TracedRun]:
        """List all frames of a condition, in the order of their starts."""
        tasks = {task.name: task for task in self.tasks}
        for chunk in self._journal.chunks(condition):
            task = tasks[chunk.task]
            runs = [(run, variant) for variant, rows in chunk.runs.items() for run in rows]
            for run, variant in sorted(runs, key=lambda pair: pair[0].stamps_ns[0]):
                yield TracedRun(task, variant, _list_stages(task, variant), chunk.clocks, run)

    def _list_layer_runs(self) -> Iterator[TracedRun]:
        """List all frames that ran layer by layer."""
        for key, task in self._list_keys():
            if key in self.layers:
                layers = self.layers[key]
                names = ("preprocess", *layers.names, "decode")
                for run in layers.runs:
                    yield TracedRun(task, key[1], names, layers.clocks, run)

    def _list_cold_runs(self) -> Iterator[TracedRun]:
        """List the first frame of each fresh process."""
        clocks = self._describe_clocks()
        for key, task in self._list_keys():
            for start in self.cold[key]:
                run = TimedRun(start.sequences[0], 0, False, start.stamps_ns[0])
                yield TracedRun(task, key[1], _list_stages(task, key[1]), clocks, run)

    def _list_keys(self) -> Iterator[tuple[Key, ProfiledTask]]:
        for task in self.tasks:
            for variant in task.variants.pipelines:
                yield (task.name, variant), task

    def _describe_clocks(self) -> str:
        space = self.platform.space
        return space.describe(space.nearest(self.platform.read()))

    @contextlib.contextmanager
    def _leaving_out(self, key: Key, what: str) -> Iterator[None]:
        """Record a measurement that a variant does not support, and continue with the others."""
        try:
            yield
        except JetsonDnnRtError as error:
            self.left_out.setdefault(key, []).append(f"no {what}: {error}")


def _describe_task(task: ProfiledTask) -> TracedTask:
    return TracedTask(
        model=task.variants.model.source,
        model_hash=task.variants.model.model_hash,
        variants=tuple(task.variants.pipelines),
        stages=task.variants.stage_names,
        deadline_ns=task.deadline_ns,
        period_ns=task.period_ns,
    )


def _list_stages(task: ProfiledTask, variant: str) -> list[str]:
    return [stage.name for stage in task.variants.pipelines[variant].stages]


def _describe_load(beside: CoRunners) -> dict[str, Any]:
    return {"count": beside.count, "rate": beside.rate, "unit": beside.unit}


def check_interference(interference: Sequence[tuple[str, int]]) -> None:
    """Raise a `ConfigurationError` for a load on the GPU if torch sees none here."""
    if any(kind == GPU for kind, _ in interference):
        try:
            from jetson_dnn_rt.backends.torch import choose_device

            device = choose_device()
        except ImportError as error:
            raise ConfigurationError(f"--interference gpu needs torch: {error}") from error
        if device != "cuda":
            raise ConfigurationError("--interference gpu: torch sees no CUDA device here")
