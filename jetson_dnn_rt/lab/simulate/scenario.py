"""Scenarios: which tasks run on which board, and what else happens; read from YAML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from jetson_dnn_rt.lab.simulate.fields import build, check, check_fields, read_yaml

SCENARIOS = "config/scenarios"
NETWORKS = "networks.yaml"
BOARDS = "boards"
CLOCKS = ("reduced", "all")

RECORDED = Board("fixed", 0.0, {}, Compute(1.0, 1.0, 1.0, 0.0, {}), 0.0, Noise(), 1.0, {}, {})
"""In place of a board where the times come from a recording."""


@dataclass(frozen=True)
class CameraSetting:
    """A camera of a scenario file."""

    period_ms: float
    jitter_ms: float = 0.0  # a frame comes up to this much late, uniformly distributed
    offset_ms: float | None = None  # of the first frame; None: within one period, by the seed

    def __post_init__(self) -> None:
        check_fields(self, "> 0", "period_ms")
        late_ms = self.jitter_ms
        check(0.0 <= late_ms < self.period_ms, f"jitter_ms must be in [0, period_ms): {late_ms}")
        if self.offset_ms is not None:
            check_fields(self, ">= 0", "offset_ms")


@dataclass(frozen=True)
class TaskSetting:
    """One task of a scenario file, or several alike."""

    network: str  # a name from networks.yaml
    name: str = ""  # default: the network's; several alike are numbered from 0
    count: int = 1
    camera: str = ""  # tasks on one camera are released together; default: one of its own
    period_ms: float = 0.0  # 0 = the board's for this network
    deadline_ms: float = 0.0  # 0 = the board's for this network
    jitter_ms: float = 0.0  # of its own camera
    variant: str = ""  # the initial one; default: the full network
    from_s: float = 0.0  # frames come in this time only
    until_s: float = 0.0  # 0 = to the end

    def __post_init__(self) -> None:
        check_fields(self, ">= 1", "count")
        check_fields(self, ">= 0", "period_ms", "deadline_ms", "jitter_ms", "from_s", "until_s")
        check(
            not self.until_s or self.until_s > self.from_s,
            f"until_s must be > from_s: {self.until_s}, {self.from_s}",
        )


@dataclass(frozen=True)
class CoRunner:
    """Another load on the board for a while: it slows all stages and draws power."""

    from_s: float
    until_s: float
    slowdown: float  # factor on the time of every stage
    power_w: float = 0.0

    def __post_init__(self) -> None:
        check(
            0.0 <= self.from_s < self.until_s,
            f"until_s must be > from_s >= 0: {self.from_s}, {self.until_s}",
        )
        check_fields(self, ">= 1", "slowdown")
        check_fields(self, ">= 0", "power_w")


@dataclass(frozen=True)
class Recording:
    """Arrivals and times from a job trace of ``jetson-dnn-rt run``."""

    trace: str  # path, relative to the scenario file
    # Length of the blocks of recorded time that are resampled: bursts survive inside a block. All
    # tasks take the same block, so that a common disturbance stays common.
    block_ms: float = 2000.0
    idle_w: float = 0.0  # power of the machine while nothing runs
    busy_w: float = 0.0  # power of the machine while a stage runs
    loss: dict[str, float] = field(default_factory=dict)  # accuracy lost by variant; default 0

    def __post_init__(self) -> None:
        check_fields(self, "> 0", "block_ms")
        check(
            0.0 <= self.idle_w <= self.busy_w,
            f"busy_w must be >= idle_w >= 0: {self.busy_w}, {self.idle_w}",
        )
        for variant, loss in self.loss.items():
            check(0.0 <= loss <= 1.0, f"loss of {variant!r} must be in [0, 1]: {loss}")


@dataclass(frozen=True)
class _ScenarioFile:
    """A scenario file; see the comments in ``config/scenarios``."""

    board: str = ""
    description: str = ""
    frames: int = 600
    workers: int = 0
    discipline: str = "edf"
    clocks: str = "reduced"
    budget_quantile: float = 0.99
    tasks: tuple[TaskSetting, ...] = ()
    cameras: dict[str, CameraSetting] = field(default_factory=dict)
    co_runners: tuple[CoRunner, ...] = ()
    noise: Noise | None = None
    thermal: Thermal | None = None
    recording: Recording | None = None

    def __post_init__(self) -> None:
        check_fields(self, ">= 1", "frames")
        check_fields(self, ">= 0", "workers")
        for key, known in (("discipline", DISCIPLINES), ("clocks", CLOCKS)):
            value = getattr(self, key)
            check(value in known, f"{key} must be one of {', '.join(known)}: {value!r}")
        check_fields(self, "in (0, 1]", "budget_quantile")
        recorded = self.recording is not None
        check(bool(self.tasks) != recorded, "tasks or recording: a scenario has one of them")
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


@dataclass(frozen=True)
class Scenario:
    """A scenario with its board and its networks."""

    name: str  # of its file
    description: str
    board: Board
    networks: NetworkFile
    workers: int  # stages that run side by side
    discipline: str
    tasks: tuple[SimulatedTask, ...] = ()  # none with a recording, which has its own
    cameras: dict[str, CameraSetting] = field(default_factory=dict)  # of every task
    frames: int = 0  # of the task with the shortest period, without ``--frames``
    clocks: str = "reduced"
    budget_quantile: float = 0.99
    co_runners: tuple[CoRunner, ...] = ()
    recording: Recording | None = None
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
    file = build(_ScenarioFile, read_yaml(path), path)
    places = (path.parent, *folders)
    board = RECORDED
    if file.board:
        board_path = _find(f"{BOARDS}/{file.board}.yaml", places, path, "board")
        board = build(Board, read_yaml(board_path), board_path)
    networks_path = _find(NETWORKS, places, path, "tasks")
    networks = build(NetworkFile, read_yaml(networks_path), networks_path)
    board = replace(board, noise=file.noise or board.noise, thermal=file.thermal or board.thermal)
    cameras = dict(file.cameras)
    tasks = [
        task
        for index, setting in enumerate(file.tasks)
        for task in _expand(setting, board, networks, cameras, path, f"tasks[{index}]")
    ]
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{path}: tasks: there are several of the name {name!r}")
    return Scenario(
        name=path.stem,
        description=file.description,
        board=board,
        networks=networks,
        tasks=tuple(tasks),
        cameras=cameras,
        workers=file.workers or max(len(tasks), 1),
        discipline=file.discipline,
        frames=file.frames,
        clocks=file.clocks,
        budget_quantile=file.budget_quantile,
        co_runners=file.co_runners,
        recording=file.recording,
        trace=path.parent / file.recording.trace if file.recording else None,
    )


def record_scenario(
    trace: Path, *, block_ms: float = 2000.0, workers: int = 1, discipline: str = "edf"
) -> Scenario:
    """The scenario of a job trace, without a file of its own.

    `workers` and `discipline` are those of the engine that was recorded: a trace lacks them.
    """
    return Scenario(
        name=trace.stem,
        description=f"recording {trace}",
        board=RECORDED,
        networks=NetworkFile((NetworkVariant("full", 1.0, 0.0),), {}),
        workers=workers,
        discipline=discipline,
        recording=Recording(str(trace), block_ms),
        trace=trace,
    )


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
    path: Path,
    key: str,
) -> list[SimulatedTask]:
    if setting.network not in networks.networks:
        known = ", ".join(networks.networks)
        raise ConfigurationError(f"{path}: {key}.network must be one of {known}")
    variants = [variant.name for variant in networks.variants]
    if setting.variant and setting.variant not in variants:
        raise ConfigurationError(f"{path}: {key}.variant must be one of {', '.join(variants)}")
    if setting.camera and setting.camera not in cameras:
        raise ConfigurationError(f"{path}: {key}.camera: there is no camera {setting.camera!r}")
    deadline_ms = setting.deadline_ms or board.deadline_ms.get(setting.network, 0.0)
    if not deadline_ms > 0.0:
        raise ConfigurationError(f"{path}: {key}.deadline_ms is missing; the board has none")
    tasks = []
    for number in range(setting.count):
        base = setting.name or setting.network
        name = base if setting.count == 1 else f"{base}{number}"
        camera = setting.camera or name
        if not setting.camera:
            period_ms = setting.period_ms or board.period_ms.get(setting.network, 0.0)
            if not period_ms > 0.0:
                raise ConfigurationError(f"{path}: {key}.period_ms is missing; the board has none")
            cameras[camera] = CameraSetting(period_ms, setting.jitter_ms)
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
    """Read a scenario from its path, or by the name of one of the package's."""
    folder = scenario_folder()
    for path in (Path(text), folder / f"{text}.yaml"):
        if path.is_file() and path.resolve() != (folder / NETWORKS).resolve():
            return load_scenario(path, (folder,))
    raise ConfigurationError(
        f"--scenario {text}: neither a file nor one of {', '.join(scenario_names())}"
    )
