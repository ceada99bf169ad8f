"""Scenarios: which tasks run where, and what happens meanwhile; read from YAML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jetson_dnn_rt.config.process import DISCIPLINES
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.board import Board, Compute, Noise, Thermal
from jetson_dnn_rt.lab.simulate.fields import build, read_yaml
from jetson_dnn_rt.lab.simulate.network import NetworkFile, NetworkVariant

NETWORKS = "networks.yaml"
BOARDS = "boards"
CLOCKS = ("reduced", "all")

RECORDED = Board(
    space="fixed",
    base_w=0.0,
    power={},
    compute=Compute(1.0, 1.0, 1.0, 0.0, {}),
    interference_per_stage=0.0,
    noise=Noise(),
    alone_share=1.0,
    deadline_ms={},
    period_ms={},
)
"""In place of a board where a recording says how long everything takes."""


@dataclass(frozen=True)
class CameraSetting:
    """A camera.

    Attributes
    ----------
    period_ms : float
        Between two frames, in milliseconds.
    jitter_ms : float
        A frame comes up to this much later than the period says, evenly spread.
    offset_ms : float, optional
        When the first frame comes; by default anywhere in the first period, by the seed.
    """

    period_ms: float
    jitter_ms: float = 0.0
    offset_ms: float | None = None

    def __post_init__(self) -> None:
        if not self.period_ms > 0.0:
            raise ValueError(f"period_ms must be > 0: {self.period_ms}")
        if not 0.0 <= self.jitter_ms < self.period_ms:
            raise ValueError(f"jitter_ms must be in [0, period_ms): {self.jitter_ms}")
        if self.offset_ms is not None and self.offset_ms < 0.0:
            raise ValueError(f"offset_ms must be >= 0: {self.offset_ms}")


@dataclass(frozen=True)
class TaskSetting:
    """One task, or several alike.

    Attributes
    ----------
    network : str
        Which one of ``networks.yaml``.
    name : str
        Of the task; by default the network's. Several alike are numbered from 0.
    count : int
        How many there are.
    camera : str
        Tasks on one camera are released together; by default each has its own.
    period_ms, deadline_ms : float
        0 = the board's for this network.
    jitter_ms : float
        Of its own camera.
    variant : str
        Set at first; by default the full network.
    from_s, until_s : float
        It gets frames only in this time, in seconds; 0 = to the end.
    """

    network: str
    name: str = ""
    count: int = 1
    camera: str = ""
    period_ms: float = 0.0
    deadline_ms: float = 0.0
    jitter_ms: float = 0.0
    variant: str = ""
    from_s: float = 0.0
    until_s: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count must be >= 1: {self.count}")
        for key in ("period_ms", "deadline_ms", "jitter_ms", "from_s", "until_s"):
            if not getattr(self, key) >= 0.0:
                raise ValueError(f"{key} must be >= 0: {getattr(self, key)}")
        if self.until_s and self.until_s <= self.from_s:
            raise ValueError(f"until_s must be > from_s: {self.until_s}, {self.from_s}")


@dataclass(frozen=True)
class CoRunner:
    """Something else on the board for a while: it slows all stages, and draws power.

    Attributes
    ----------
    from_s, until_s : float
        When, in seconds.
    slowdown : float
        Factor on the time of every stage.
    power_w : float
        In watts.
    """

    from_s: float
    until_s: float
    slowdown: float
    power_w: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.from_s < self.until_s:
            raise ValueError(f"until_s must be > from_s >= 0: {self.from_s}, {self.until_s}")
        if not self.slowdown >= 1.0 or not self.power_w >= 0.0:
            raise ValueError(
                f"slowdown must be >= 1 and power_w >= 0: {self.slowdown}, {self.power_w}"
            )


@dataclass(frozen=True)
class Recording:
    """Times, and arrivals, from a job trace of ``jetson-dnn-rt run``.

    Attributes
    ----------
    trace : str
        The file, relative to the scenario's.
    block_ms : float
        Length of the blocks of recorded time that are put together anew, so that bursts
        survive; blocks are taken from all tasks alike, so that a disturbance stays one.
    loss : mapping of str to float
        Accuracy lost in a variant; 0 where it is not named.
    idle_w, busy_w : float
        Power of the machine while nothing runs and while a stage does, in watts.
    """

    trace: str
    block_ms: float = 2000.0
    idle_w: float = 0.0
    busy_w: float = 0.0
    loss: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.block_ms > 0.0:
            raise ValueError(f"block_ms must be > 0: {self.block_ms}")
        if not 0.0 <= self.idle_w <= self.busy_w:
            raise ValueError(f"busy_w must be >= idle_w >= 0: {self.busy_w}, {self.idle_w}")
        for variant, loss in self.loss.items():
            if not 0.0 <= loss <= 1.0:
                raise ValueError(f"loss of {variant!r} must be in [0, 1]: {loss}")


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
        if self.frames < 1:
            raise ValueError(f"frames must be >= 1: {self.frames}")
        if self.workers < 0:
            raise ValueError(f"workers must be >= 0: {self.workers}")
        if self.discipline not in DISCIPLINES:
            raise ValueError(
                f"discipline must be one of {', '.join(DISCIPLINES)}: {self.discipline!r}"
            )
        if self.clocks not in CLOCKS:
            raise ValueError(f"clocks must be one of {', '.join(CLOCKS)}: {self.clocks!r}")
        if not 0.0 < self.budget_quantile <= 1.0:
            raise ValueError(f"budget_quantile must be in (0, 1]: {self.budget_quantile}")
        if bool(self.tasks) == (self.recording is not None):
            raise ValueError("tasks or recording: a scenario has one of them")
        if bool(self.board) == (self.recording is not None):
            raise ValueError("board: one that is modelled, none with a recording")


@dataclass(frozen=True)
class SimulatedTask:
    """A task of a scenario, with everything that the files leave to defaults filled in."""

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
    """A scenario with its board and its networks.

    Attributes
    ----------
    name : str
        Of its file.
    tasks : tuple of SimulatedTask
        The cohort; empty where a recording says what runs.
    cameras : mapping of str to CameraSetting
        Every task's is there.
    workers : int
        Stages that run side by side.
    frames : int
        Of the task with the shortest period, without ``--frames``.
    """

    name: str
    description: str
    board: Board
    networks: NetworkFile
    tasks: tuple[SimulatedTask, ...]
    cameras: dict[str, CameraSetting]
    workers: int
    discipline: str
    frames: int
    clocks: str
    budget_quantile: float
    co_runners: tuple[CoRunner, ...]
    recording: Recording | None
    trace: Path | None

    @property
    def interference(self) -> tuple[float, ...]:
        """True slow-down of a stage with 1, 2, ... of them side by side."""
        step = self.board.interference_per_stage
        return tuple(1.0 + step * others for others in range(self.workers))


def load_scenario(path: Path, folders: Sequence[Path] = ()) -> Scenario:
    """Read a scenario with its board and the networks.

    Parameters
    ----------
    path : Path
        The scenario.
    folders : sequence of Path
        Where boards and networks are looked for, after the scenario's own folder.

    Raises
    ------
    ConfigurationError
        Which names the file and the key.
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

    Parameters
    ----------
    trace : Path
        Job records.
    block_ms : float
        See `Recording`.
    workers, discipline : int, str
        Of the engine that was recorded; the trace does not say.
    """
    return Scenario(
        name=trace.stem,
        description=f"recording {trace}",
        board=RECORDED,
        networks=NetworkFile((NetworkVariant("full", 1.0, 0.0),), {}),
        tasks=(),
        cameras={},
        workers=workers,
        discipline=discipline,
        frames=0,
        clocks="reduced",
        budget_quantile=0.99,
        co_runners=(),
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
