# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Laboratory: the worlds of a scenario, one per seed, and the tables from profiling it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.coordinator.tables.hull import reduce_clocks
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Integers, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.board import BoardModel, Floats, fit_intensity
from jetson_dnn_rt.lab.simulate.recording import WarmUpTimes
from jetson_dnn_rt.lab.simulate.scenario import Scenario, SimulatedTask
from jetson_dnn_rt.lab.simulate.world import World, WorldTask, draw_noise, make_generator
from jetson_dnn_rt.platforms.boards import preset_index, tx2_space, xavier_space
from jetson_dnn_rt.platforms.clocks import ClockSpace

PROFILE_SEED = 20_200_715  # nothing is simulated with this seed
PROFILED_FRAMES = 256  # frames whose stage times a table holds
PROFILE_RUNS = 64  # runs of which the slow-down measured at one clock configuration is a median
POWER_ERROR = 0.01  # standard deviation of a measured power: resolution, averaging of an INA3221

_BOARDS: dict[str, tuple[Callable[[], ClockSpace], str, str, str]] = {
    "tx2": (tx2_space, "tx2", "MAXN", "MAXQ"),
    "xavier": (xavier_space, "agx-xavier", "MAXN", "15W"),
}
"""Clock space, and the presets used for Max-N and Max-Q (the paper: 15 W on Xavier)."""


class Laboratory:
    """Maker of the worlds of a modelled scenario, and profiler of its tasks.

    The slow part (the clock table of tens of thousands of configurations) is done once. Scenarios
    with a recording have a `jetson_dnn_rt.lab.simulate.recording.RecordedLaboratory`.
    """

    def __init__(self, scenario: Scenario) -> None:
        if scenario.recording is not None:
            raise ConfigurationError(f"scenario {scenario.name} is recorded, it has no model")
        self.scenario = scenario
        self._space, self._presets = _clock_space(scenario.board.space)
        self.warm_up_ns: dict[str, WarmUpTimes] = {}  # none was measured: see `seed_budgets`

    @cached_property
    def clock_table(self) -> ClockTable:
        """Clock configurations that policies choose from."""
        scenario = self.scenario
        everything = np.arange(len(self._space), dtype=np.int64)
        model = BoardModel(scenario.board, self._space, everything)
        table = ClockTable(self._space, everything, model.idle_w, *self._presets)
        tables = [self._true_table(model, task) for task in self._different_tasks]
        if scenario.clocks == "reduced":
            return reduce_clocks(table, tables)[0]
        slowness = np.zeros(len(everything))
        for task_table in tables:
            slowness += np.log(task_table.slowdown).mean(axis=(0, 1))
        return table.take(np.lexsort((everything, -slowness)).tolist())

    @cached_property
    def tables(self) -> list[TaskTable]:
        """Tables from profiling each task alone on the board, with measurement errors.

        Stage times at the fastest clocks are those of frames of another seed; slow-downs and
        powers have the error of a median of some runs. Co-runners and heat are not profiled.
        """
        generator = make_generator(PROFILE_SEED, "profile", self.scenario.name)
        return [self._profile(task, generator) for task in self.scenario.tasks]

    @cached_property
    def true_tables(self) -> list[TaskTable]:
        """Tables without errors and noise, for the oracle only."""
        return [self._true_table(self._models[0], task) for task in self.scenario.tasks]

    @cached_property
    def interference(self) -> tuple[float, ...]:
        """Slow-down with 1, 2, ... stages side by side, measured as ratio of two medians."""
        generator = make_generator(PROFILE_SEED, "interference", self.scenario.name)
        error = self._median_error * np.sqrt(2.0)
        return tuple(
            factor if factor == 1.0 else factor * float(np.exp(error * generator.normal()))
            for factor in self.scenario.interference
        )

    def world(self, seed: int, frames: int | None = None) -> World:
        """World of a seed >= 0; `frames` are counted on the task with the shortest period."""
        scenario = self.scenario
        count = scenario.frames if frames is None else frames
        duration_ns = count * min(task.period_ns for task in scenario.tasks)
        tasks = tuple(self._make_task(task, seed, duration_ns) for task in scenario.tasks)
        return World(
            tasks=tasks,
            clock_table=self.clock_table,
            workers=scenario.workers,
            discipline=scenario.discipline,
            interference=scenario.interference,
            idle_w=np.stack([model.idle_w for model in self._models]),
            dynamic_w=np.stack([model.dynamic_w for model in self._models]),
            end_ns=duration_ns + max(task.deadline_ns for task in scenario.tasks),
            co_runners=scenario.co_runners,
            helpers=scenario.helpers,
            thermal=scenario.board.thermal,
        )

    @cached_property
    def _models(self) -> list[BoardModel]:
        """Models of the board, and of the board while it throttles."""
        board, indices = self.scenario.board, self.clock_table.indices
        models = [BoardModel(board, self._space, indices)]
        if board.thermal is not None:
            caps_hz = {name: mhz * 1e6 for name, mhz in board.thermal.cap_mhz.items()}
            unknown = [name for name in caps_hz if name not in self._space.names]
            if unknown:
                raise ConfigurationError(
                    f"scenario {self.scenario.name}: thermal.cap_mhz: {board.space} has no domain "
                    f"{unknown[0]!r}, but {', '.join(self._space.names)}"
                )
            models.append(BoardModel(board, self._space, indices, caps_hz))
        return models

    @property
    def _measured(self) -> dict[str, tuple[float, ...]]:
        """Measured U of the stages, by network."""
        scenario = self.scenario
        if scenario.calibrated and not scenario.board.usefulness:
            raise ConfigurationError(
                f"scenario {scenario.name}: calibrated: the board has no measured usefulness"
            )
        return scenario.board.usefulness if scenario.calibrated else {}

    @cached_property
    def _intensities(self) -> dict[str, Floats]:
        """Factors on the dynamic power of the stages, by network, each [K]."""
        scenario, networks = self.scenario, self.scenario.networks.networks
        names = {task.network for task in scenario.tasks}
        intensities = {name: np.ones(len(networks[name].stages)) for name in names}
        measured = self._measured
        if not measured:
            return intensities
        model = BoardModel(scenario.board, self._space, np.arange(len(self._space)))
        for name in names & measured.keys():
            if len(measured[name]) != len(intensities[name]):
                raise ConfigurationError(
                    f"scenario {scenario.name}: usefulness of {name} must have "
                    f"{len(intensities[name])} values: {len(measured[name])}"
                )
            shares = model.shares(networks[name])
            dynamic_w = (model.activity(shares) * model.dynamic_w).sum(axis=-1)
            intensities[name] = fit_intensity(
                np.array(measured[name]), model.slowdown(shares), model.idle_w, dynamic_w
            )
        return intensities

    @property
    def _different_tasks(self) -> list[SimulatedTask]:
        return list({task.network: task for task in self.scenario.tasks}.values())

    @property
    def _median_error(self) -> float:
        """Standard error of the logarithm of a median of `PROFILE_RUNS` stage times."""
        noise = self.scenario.board.noise
        sigma = float(np.hypot(noise.frame_sigma, noise.stage_sigma))
        return float(np.sqrt(np.pi / 2.0)) * sigma / float(np.sqrt(PROFILE_RUNS))

    def _base_ns(self, model: BoardModel, task: SimulatedTask) -> Floats:
        board, networks = self.scenario.board, self.scenario.networks
        alone_ns = board.alone_share * board.deadline_ms[task.network] * 1e6
        weights = model.stage_weights(networks.networks[task.network])
        return np.asarray(np.outer(networks.times(), alone_ns * weights))

    def _physics(self, model: BoardModel, task: SimulatedTask) -> tuple[Floats, Floats, Floats]:
        """Slow-down [V, K, C], activity [V, K, C, 3] and power alone [V, K, C]."""
        networks = self.scenario.networks
        shares = model.shares(networks.networks[task.network])
        slowdown, activity = model.slowdown(shares), model.activity(shares)
        activity = activity * self._intensities[task.network][:, np.newaxis, np.newaxis]
        power = model.idle_w + (activity * model.dynamic_w).sum(axis=-1)

        def for_each_variant(array: Floats) -> Floats:
            return np.broadcast_to(array, (len(networks.variants), *array.shape))

        return for_each_variant(slowdown), for_each_variant(activity), for_each_variant(power)

    def _true_table(self, model: BoardModel, task: SimulatedTask) -> TaskTable:
        networks = self.scenario.networks
        slowdown, _, power = self._physics(model, task)
        return TaskTable(
            task=task.name,
            stages=tuple(stage.name for stage in networks.networks[task.network].stages),
            variants=tuple(variant.name for variant in networks.variants),
            deadline_ns=task.deadline_ns,
            period_ns=task.period_ns,
            times_ns=_to_ns(self._base_ns(model, task))[:, :, np.newaxis],
            slowdown=slowdown,
            power_w=power,
            loss=networks.losses(task.network),
            usefulness=self._measured.get(task.network, ()),
        )

    def _profile(self, task: SimulatedTask, generator: np.random.Generator) -> TaskTable:
        truth = self._true_table(self._models[0], task)
        noise = draw_noise(
            self.scenario.board.noise, generator, PROFILED_FRAMES, len(truth.stages)
        )
        times = self._base_ns(self._models[0], task)[:, :, np.newaxis] * noise.T
        error = np.exp(self._median_error * generator.standard_normal(truth.slowdown.shape))
        # Relative to the fastest clocks: there it is 1 by definition.
        error[:, :, self.clock_table.fastest] = 1.0
        misread = np.exp(POWER_ERROR * generator.standard_normal(truth.power_w.shape))
        return replace(
            truth,
            times_ns=_to_ns(times),
            slowdown=truth.slowdown * error,
            power_w=truth.power_w * misread,
        )

    def _make_task(self, task: SimulatedTask, seed: int, duration_ns: int) -> WorldTask:
        physics = [self._physics(model, task) for model in self._models]
        base_ns = self._base_ns(self._models[0], task)
        table = self._true_table(self._models[0], task)
        arrivals = self._arrivals(task, seed, duration_ns)
        noise = draw_noise(
            self.scenario.board.noise,
            make_generator(seed, "noise", task.name),
            max((sequence for _, _, sequence in arrivals), default=-1) + 1,
            len(table.stages),
        )
        return WorldTask(
            parameters=TaskConfig(
                task.name, budget_quantile=self.scenario.budget_quantile
            ).for_engine(
                table.stages,
                table.variants,
                task.variant,
                period_ns=task.period_ns,
                deadline_ns=task.deadline_ns,
            ),
            spans={variant: (1,) * len(table.stages) for variant in table.variants},
            arrivals=arrivals,
            base_ns=base_ns,
            noise=noise[[sequence for _, _, sequence in arrivals]],
            slowdown=np.stack([slowdown for slowdown, _, _ in physics]),
            activity=np.stack([activity for _, activity, _ in physics]),
            loss=table.loss,
            overhead_ns=np.zeros((len(arrivals), len(table.stages)), np.int64),
            wake_ns=np.zeros(len(arrivals), np.int64),
            narrow=np.full_like(base_ns, task.narrow) if task.narrow else None,
            narrow_slowdowns=(task.narrow,) if task.narrow else (),
        )

    def _arrivals(
        self, task: SimulatedTask, seed: int, duration_ns: int
    ) -> tuple[tuple[int, int, int], ...]:
        """Release, capture and sequence of the frames that a task gets from its camera."""
        camera = self.scenario.cameras[task.camera]
        generator = make_generator(seed, "camera", task.camera)
        period_ns = round(camera.period_ms * 1e6)
        offset_ns = int(generator.integers(period_ns))
        if camera.offset_ms is not None:
            offset_ns = round(camera.offset_ms * 1e6)
        count = max(0, -(-(duration_ns - offset_ns) // period_ns))
        jitter = generator.integers(0, round(camera.jitter_ms * 1e6) + 1, count)
        releases: Integers = offset_ns + period_ns * np.arange(count) + jitter
        until_ns = task.until_ns or duration_ns
        return tuple(
            (release, release, sequence)
            for sequence, release in enumerate(releases.tolist())
            if task.from_ns <= release < until_ns
        )


def _to_ns(times: Floats) -> Integers:
    return np.maximum(np.rint(times), 1.0).astype(np.int64)


def _clock_space(name: str) -> tuple[ClockSpace, tuple[int, int]]:
    if name == "fixed":
        return ClockSpace(()), (0, 0)
    if name not in _BOARDS:
        raise ConfigurationError(
            f"space of a board must be one of {', '.join((*_BOARDS, 'fixed'))}: {name!r}"
        )
    make, board, max_n, max_q = _BOARDS[name]
    space = make()
    return space, (preset_index(board, max_n, space), preset_index(board, max_q, space))
