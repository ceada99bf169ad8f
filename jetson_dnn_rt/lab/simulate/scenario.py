# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Scenarios: tasks, board, co-runners and recordings; read from YAML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated

from jetson_dnn_rt.cli.environment import find_shared_file
from jetson_dnn_rt.config.process import DISCIPLINES
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.board import (
    Board,
    Compute,
    NetworkFile,
    NetworkVariant,
    Noise,
    Thermal,
)
from jetson_dnn_rt.lab.simulate.fields import (
    Factor,
    NotNegative,
    Positive,
    PositiveCount,
    Quantile,
    Share,
    check,
    read_file,
)
from jetson_dnn_rt.safety.records import matching, one_of, within
from jetson_dnn_rt.safety.yaml_files import describe

SCENARIOS = "config/scenarios"
NETWORKS = "networks.yaml"
BOARDS = "boards"
CLOCKS = ("reduced", "all")
MOST_TASKS = 1000
"""Of a scenario; workers and helpers, too."""

FewCount = Annotated[int, within(0, MOST_TASKS)]

RECORDED = Board("fixed", 0.0, {}, Compute(1.0, 1.0, 1.0, 0.0, {}), 0.0, Noise(), 1.0, {}, {})
"""Used in place of a board if the times come from a recording."""


@dataclass(frozen=True)
class CameraSetting:
    """A camera of a scenario file."""

    period_ms: Positive
    jitter_ms: NotNegative = 0.0  # a frame comes up to this much late, uniformly distributed
    # Of the first frame; None: within one period, by the seed.
    offset_ms: NotNegative | None = None

    def __post_init__(self) -> None:
        late_ms = self.jitter_ms
        check(0.0 <= late_ms < self.period_ms, f"jitter_ms must be in [0, period_ms): {late_ms}")


@dataclass(frozen=True)
class TaskSetting:
    """Task of a scenario file, or several equal ones."""

    network: str  # a name from networks.yaml
    name: str = ""  # default: the network's; equal ones are numbered from 0
    count: Annotated[int, within(1, MOST_TASKS)] = 1
    camera: str = ""  # tasks on one camera are released together; default: one of its own
    period_ms: NotNegative = 0.0  # 0 = the board's for this network
    deadline_ms: NotNegative = 0.0  # 0 = the board's for this network
    jitter_ms: NotNegative = 0.0  # of its own camera
    variant: str = ""  # the initial one; default: the full network
    from_s: NotNegative = 0.0  # frames come only between from_s and until_s
    until_s: NotNegative = 0.0  # 0 = to the end
    # How many times as long its network takes narrow, beside others; 0 = it never is.
    narrow: NotNegative = 0.0

    def __post_init__(self) -> None:
        check(
            not self.until_s or self.until_s > self.from_s,
            f"until_s must be > from_s: {self.until_s}, {self.from_s}",
        )


@dataclass(frozen=True)
class CoRunner:
    """Temporary load on the board: it slows down all stages and draws power."""

    from_s: NotNegative
    until_s: NotNegative
    slowdown: Factor  # factor on the time of every stage
    power_w: NotNegative = 0.0

    def __post_init__(self) -> None:
        check(
            self.from_s < self.until_s, f"until_s must be > from_s: {self.until_s}, {self.from_s}"
        )


@dataclass(frozen=True)
class Recording:
    """Arrivals and times from a job trace of ``jetson-dnn-rt run``."""

    # Path, relative to the scenario file; in a file in its folder or one below it.
    trace: str
    # Length of the blocks of recorded time that are resampled: bursts survive inside a block. All
    # tasks take the same block, so that a common disturbance stays common.
    block_ms: Positive = 2000.0
    idle_w: NotNegative = 0.0  # power of the machine while nothing runs
    busy_w: NotNegative = 0.0  # power of the machine while a stage runs
    loss: dict[str, Share] = field(default_factory=dict)  # accuracy lost by variant; default 0

    def __post_init__(self) -> None:
        check(
            self.idle_w <= self.busy_w, f"busy_w must be >= idle_w: {self.busy_w}, {self.idle_w}"
        )


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """Settings that a scenario copies from its file; see the comments in ``config/scenarios``."""

    description: str = ""
    frames: PositiveCount = 600  # of the task with the shortest period, without ``--frames``
    discipline: Annotated[str, one_of(*DISCIPLINES)] = "edf"
    helpers: FewCount = 0  # beside the workers: for frames, and networks that are narrow
    clocks: Annotated[str, one_of(*CLOCKS)] = "reduced"
    budget_quantile: Quantile = 0.99
    calibrated: bool = False  # the power of stages is fit to what was measured of the board
    cameras: dict[str, CameraSetting] = field(default_factory=dict)
    co_runners: tuple[CoRunner, ...] = ()
    recording: Recording | None = None


@dataclass(frozen=True, kw_only=True)
class _ScenarioFile(_Settings):
    """A scenario file."""

    board: Annotated[str, matching(r"[\w-]{0,64}", "a name, not a path")] = ""
    workers: FewCount = 0
    tasks: tuple[TaskSetting, ...] = ()
    noise: Noise | None = None
    thermal: Thermal | None = None

    def __post_init__(self) -> None:
        recorded = self.recording is not None
        check(bool(self.tasks) != recorded, "tasks or recording: a scenario has one of them")
        count = sum(task.count for task in self.tasks)
        check(count <= MOST_TASKS, f"tasks: {count}, at most {MOST_TASKS} of them")
        check(bool(self.board) != recorded, "board: one that is modelled, none with a recording")


@dataclass(frozen=True)
class SimulatedTask:
    """A task of a scenario, with the defaults of the files filled in."""

    name: str
    network: str
    camera: str
    deadline_ns: int
    period_ns: int
    variant: str
    from_ns: int
    until_ns: int
    narrow: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Scenario(_Settings):
    """A scenario with its board and its networks."""

    name: str  # of its file
    board: Board
    networks: NetworkFile
    workers: int  # stages that run side by side
    tasks: tuple[SimulatedTask, ...] = ()  # none with a recording, which has its own
    trace: Path | None = None

    @property
    def interference(self) -> tuple[float, ...]:
        """True slow-down of a stage with 1, 2, ... of them side by side."""
        step = self.board.interference_per_stage
        return tuple(1.0 + step * others for others in range(self.workers))


def load_scenario(path: Path, folders: Sequence[Path] = ()) -> Scenario:
    """Read a scenario with its board and the networks.

    Boards and networks are searched in the scenario's own folder, then in `folders`. A
    `ConfigurationError` names the file and the key.
    """
    file = read_file(_ScenarioFile, path)
    places = (path.parent, *folders)
    board = RECORDED
    if file.board:
        board = read_file(Board, _find(f"{BOARDS}/{file.board}.yaml", places, path, "board"))
    networks = read_file(NetworkFile, _find(NETWORKS, places, path, "tasks"))
    board = replace(board, noise=file.noise or board.noise, thermal=file.thermal or board.thermal)
    settings = {item.name: getattr(file, item.name) for item in fields(_Settings)}
    settings["cameras"] = cameras = dict(file.cameras)
    tasks = [
        task
        for index, setting in enumerate(file.tasks)
        for task in _expand(setting, board, networks, cameras, f"{path}: tasks[{index}]")
    ]
    if file.recording and not _is_below(file.recording.trace):
        raise ConfigurationError(
            f"{path}: recording.trace must be in the folder of the scenario: "
            f"{describe(file.recording.trace)}; fix: move one to the other, or evaluate the trace "
            "itself: jetson-dnn-rt evaluate --mode simulated TRACE"
        )
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{path}: tasks: there are several of the name {name!r}")
    return Scenario(
        **settings,
        name=path.stem,
        board=board,
        networks=networks,
        tasks=tuple(tasks),
        workers=file.workers or max(len(tasks), 1),
        trace=path.parent / file.recording.trace if file.recording else None,
    )


def record_scenario(
    trace: Path,
    *,
    block_ms: float = 2000.0,
    workers: int = 1,
    discipline: str = "edf",
    helpers: int = 0,
) -> Scenario:
    """The scenario of a job trace, without a file of its own.

    `workers`, `discipline` and `helpers` are those of the engine, which need not be the recorded.
    """
    return Scenario(
        name=trace.stem,
        description=f"recording {trace}",
        board=RECORDED,
        networks=NetworkFile((NetworkVariant("full", 1.0, 0.0),), {}),
        workers=workers,
        discipline=discipline,
        helpers=helpers,
        recording=Recording(str(trace), block_ms),
        trace=trace,
    )


def _is_below(trace: str) -> bool:
    """Whether a path stays in its folder: a scenario from a stranger must lead nowhere else."""
    return not Path(trace).is_absolute() and ".." not in Path(trace).parts


def _find(relative: str, places: Sequence[Path], scenario: Path, key: str) -> Path:
    for place in places:
        if (place / relative).is_file():
            return place / relative
    looked = ", ".join(map(str, places))
    raise ConfigurationError(f"{scenario}: {key}: there is no {relative} in {looked}")


def _expand(
    setting: TaskSetting,
    board: Board,
    networks: NetworkFile,
    cameras: dict[str, CameraSetting],
    key: str,
) -> list[SimulatedTask]:
    if setting.network not in networks.networks:
        known = ", ".join(networks.networks)
        raise ConfigurationError(f"{key}.network must be one of {known}")
    variants = [variant.name for variant in networks.variants]
    if setting.variant and setting.variant not in variants:
        raise ConfigurationError(f"{key}.variant must be one of {', '.join(variants)}")
    if setting.camera and setting.camera not in cameras:
        raise ConfigurationError(f"{key}.camera: there is no camera {setting.camera!r}")
    deadline_ms = setting.deadline_ms or board.deadline_ms.get(setting.network, 0.0)
    if not deadline_ms > 0.0:
        raise ConfigurationError(f"{key}.deadline_ms is missing; the board has none")
    tasks = []
    for number in range(setting.count):
        base = setting.name or setting.network
        name = base if setting.count == 1 else f"{base}{number}"
        camera = setting.camera or name
        if not setting.camera:
            period_ms = setting.period_ms or board.period_ms.get(setting.network, 0.0)
            if not period_ms > 0.0:
                raise ConfigurationError(f"{key}.period_ms is missing; the board has none")
            try:
                cameras[camera] = CameraSetting(period_ms, setting.jitter_ms)
            except ValueError as error:  # neither is wrong alone
                raise ConfigurationError(f"{key}: {error}") from error
        tasks.append(
            SimulatedTask(
                name=name,
                network=setting.network,
                camera=camera,
                deadline_ns=round(deadline_ms * 1e6),
                period_ns=round(cameras[camera].period_ms * 1e6),
                variant=setting.variant or variants[0],
                from_ns=round(setting.from_s * 1e9),
                until_ns=round(setting.until_s * 1e9),
                narrow=setting.narrow,
            )
        )
    return tasks


def scenario_folder() -> Path:
    """Folder of the package's scenarios: in the checkout, else where it is installed."""
    networks = find_shared_file(f"{SCENARIOS}/{NETWORKS}")
    if networks is None:
        raise ConfigurationError(f"{SCENARIOS} of this package is not installed")
    return networks.parent


def scenario_names() -> list[str]:
    """Names of the package's scenarios."""
    return sorted(path.stem for path in scenario_folder().glob("*.yaml") if path.name != NETWORKS)


def open_scenario(text: str) -> Scenario:
    """Read a scenario from its path, or one of the package's by name."""
    folder = scenario_folder()
    for path in (Path(text), folder / f"{text}.yaml"):
        if path.is_file() and path.resolve() != (folder / NETWORKS).resolve():
            return load_scenario(path, (folder,))
    raise ConfigurationError(
        f"--scenario {text}: neither a file nor one of {', '.join(scenario_names())}"
    )
