# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Streaming accuracy: results judged against the truth at the time when they are published.

A camera plays held-out drives of the procedural road, whose truth is known at every instant of a
fine grid. The built-in detector and segmenter look at every frame; a third network that burns a
given time on one core, and is not judged, raises the work of a frame to LOAD times its period.
At every instant the newest result that was published by then is compared with the truth
(`lab/streaming/accuracy.py`): COCO's AP of boxes (sAP), the mIoU of masks at every fourth pixel.
Before a window's first result there is none: every object is missed.

Sides run one after the other in processes of their own, in turn, on the same camera:

ours          the composed graph, variants and threads chosen by the package
VARIANT       the same, detector and segmenter in that variant
POLICY        the same with a coordinator, which chooses among these variants; of horizon with
              its mode
naive         the usual rclpy node (`overload/nodes.py`), which knows no deadlines
peer          with ``--peer``: somebody else's detection node (`overload/peer.py`), which should
              run the same network; the usual node has the other networks beside it

Each round plays another drive, the same one for all sides and cells. Sides are held against each
other drive by drive, and bars hold by the 95 % interval over at least ten. Beside the figures
stands what the full network reaches on the same drives if it takes no time (offline), each
instant with the result of its own frame; the share of it that is left is what delay costs.

Cells whose period is too short for the two networks at that load are left out and listed. Bars, in
every cell: the sAP of ours is above 0 and not below that of the naive node, or of the peer, and at
loads of 2 and more at least 1.2 times as large; that of horizon:streaming is above 0 and at least
0.95 times that of every VARIANT of the cell, where both sides ran. A VARIANT that failed is not
held against it. A peer has figures of the detector alone; a second table has those of all sides.
"""

from __future__ import annotations

import argparse
import itertools
import math
import pickle
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2

from benchmarks.coordinate import build_missing, name_variants
from benchmarks.harness.intervals import LEAST_ROUNDS, Interval, compare, show_interval
from benchmarks.harness.options import CORES, Options, add_library, echo
from benchmarks.harness.processes import BenchmarkError, Child
from benchmarks.harness.tables import (
    Report,
    Verdict,
    judge_all,
    say,
    say_shortly,
    say_verdict,
    tabulate,
)
from benchmarks.harness.tasks import SIZE, configure, load_task
from benchmarks.harness.timing import order
from benchmarks.overload.bench import (
    NODES,
    ConsumerSpec,
    Played,
    Rounds,
    check_stamps,
    describe,
    describe_detector,
    measure_alone,
    play,
    thin_out,
)
from benchmarks.overload.peer import DETECTOR, PEER, Peer, add_peer, make_peer, show_peer
from jetson_dnn_rt.cameras.files import read_image
from jetson_dnn_rt.config.nodes import MODES, POLICIES
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.demo.scenes import SceneGenerator, held_out_seed
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.streaming.accuracy import StreamingMetric, Timed
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.results import Detections, Result, Segmentation
from jetson_dnn_rt.runtime.task import open_model
from jetson_dnn_rt.safety.children import python_command
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.running.variant_set import choose_default

OURS, NAIVE = "ours", "naive"
SIDES = {
    f"{policy}:{mode}" if policy == "horizon" else policy: (policy, mode)
    for policy in POLICIES
    for mode in (MODES if policy == "horizon" else MODES[:1])
}
"""Policy and mode by side."""
FACTOR_BAR, FACTOR_FROM_LOAD = 1.2, 2.0
CHOOSER, CHOOSER_BAR = "horizon:streaming", 0.95
"""The policy that looks for the best sAP, and what it has at least of the best variant's."""
CHOOSER_KEY = f"{CHOOSER}_to_best_variant"
KINDS: dict[str, Kind] = {DETECTOR: "detection", "segmenter": "segmentation"}
COMPANION = "companion"


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--rates", [10.0, 30.0, 60.0], "of the camera in Hz; each divides --grid", above=0)
    add("--loads", [0.5, 1.0, 2.0, 3.0], "work per second that arrives, in seconds", above=0)
    add("--grid", 60.0, "instants per second at which the truth is known", above=0, metavar="HZ")
    add("--seeds", list(range(LEAST_ROUNDS)), "held-out drives, one for each round", least=0)
    add("--seconds", 8.0, "per round and side", above=0)
    add("--drive-seconds", 5.0, "length of a drive, which then begins again", above=0)
    add(
        "--variants", None,
        "of both networks (default: full and tucker-0.50 on the fastest back end, in all of its "
        "precisions)", metavar="A,B,...",
    )  # fmt: skip
    add(
        "--policies", ["horizon:streaming", "horizon:max_accuracy", "neuos_balanced", "alert"],
        "of the coordinator", choices=(*SIDES, "none"),
    )  # fmt: skip
    add("--deadline-factor", 3.0, "deadline of ours = F * the work of a frame", metavar="F")
    add("--margin-ms", 4.0, "for transport and publication, subtracted from it")
    add("--confidence", 0.05, "least score of a box: AP wants nearly the whole curve")
    add("--threads", CORES, "of one inference (default: all cores)")
    add_library(add)
    add_peer(add)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all sides in every cell; `BenchmarkError` when the camera fails or fits no grid."""
    for rate_hz in args.rates:
        find_step(rate_hz, args.grid, count_instants(args.grid, args.drive_seconds))
    tasks = tuple(
        configure(
            name, f"builtin:{name}", kind=kind, weights="DEFAULT",
            confidence_threshold=args.confidence, engine_cache=str(args.engine_cache or ""),
            least_agreement=0.5,  # a variant that agrees less would measure the full network
        )
        for name, kind in KINDS.items()
    )  # fmt: skip
    peer = make_peer(args)
    policies = [name for name in args.policies if name != "none"]
    variants = _find_variants(tasks, args, build=bool(policies))
    sides = [OURS, *variants, *policies, NAIVE, *([] if peer is None else [PEER])]
    with tempfile.TemporaryDirectory(prefix="streaming-") as name:
        folder = Path(name)
        drives = {}
        for seed in args.seeds:
            say(f"streaming: drive {seed} is painted")
            drives[seed] = Drive.paint(folder / str(seed), seed, args.grid, args.drive_seconds)
        first = drives[args.seeds[0]].folder(args.grid)
        costs_ms = {task.name: measure_alone(task, args.threads, first) for task in tasks}
        say(f"streaming: alone: {costs_ms}")
        offline = _measure_offline(tasks, drives.values(), args.threads)
        cells, left_out = [], []
        for rate_hz, load in itertools.product(args.rates, args.loads):
            companion_ms = load * 1e3 / rate_hz - sum(costs_ms.values())
            if companion_ms < 0:
                left_out.append({"rate_hz": rate_hz, "load": load})
                continue
            cell = Cell(rate_hz, load, companion_ms, args.deadline_factor * load * 1e3 / rate_hz)
            measured = _measure_cell(cell, tasks, variants, sides, peer, drives, folder, args)
            deadline_ns = int(cell.deadline_ms * 1e6)
            figures = {
                side: _describe_side(side, one, deadline_ns) for side, one in measured.items()
            }
            cells.append(judge_cell(cell, figures, offline, variants))
            ratio = cells[-1]["ours_to_naive"] or math.nan
            say(f"streaming: {rate_hz:g} Hz, load {load:g}: ours is {ratio:.2f} x the naive node")
            if peer is not None:
                cells[-1][DETECTOR] = {
                    side: describe_detector(one.rounds, one.stamps_ns, deadline_ns)
                    for side, one in measured.items()
                }
    return {
        **echo(args, "seeds grid seconds drive_seconds deadline_factor margin_ms confidence"),
        **echo(args, "threads"),
        "variants": variants,
        "policies": policies,
        "execution_alone_ms": costs_ms,
        "offline": offline,
        "bars": {"ours_to_naive": 1.0, "at_load_2": FACTOR_BAR, CHOOSER_KEY: CHOOSER_BAR},
        **({} if peer is None else {PEER: asdict(peer)}),
        "left_out": left_out,
        "cells": cells,
        "passed": judge_all(cell["passed"] for cell in cells),
    }


# -- the drives: frames on disk, and their truth --------------------------------------------------


@dataclass(frozen=True, eq=False)
class Drive:
    """A drive that was painted at the instants of a grid; frame k is ``k.bmp``."""

    path: Path
    grid_hz: float
    truths: Sequence[Mapping[str, Result]]
    """By instant and task; masks are thinned out as the results are."""

    @classmethod
    def paint(cls, path: Path, seed: int, grid_hz: float, seconds: float) -> Drive:
        """Paint a held-out drive into a new folder; uncompressed, so that playing costs little."""
        folder = path / "all"
        folder.mkdir(parents=True)
        generator = SceneGenerator(held_out_seed(seed), SIZE)
        truths = []
        for index in range(count_instants(grid_hz, seconds)):
            scene = generator.render(round(index * 1e9 / grid_hz))
            cv2.imwrite(str(folder / f"{index:06d}.bmp"), scene.image)
            scores = scene.boxes[:, 0] * 0.0 + 1.0
            boxes = Detections(scene.boxes, scores, scene.class_ids)
            mask = thin_out(Segmentation(scene.mask))
            truths.append(dict(zip(KINDS, (boxes, mask), strict=True)))
        return cls(path, grid_hz, truths)

    def folder(self, rate_hz: float) -> Path:
        """Folder of the frames that a camera of a rate sees; the grid must be a multiple of it."""
        step = self.step(rate_hz)
        folder = self.path / f"step-{step}"
        if not folder.exists():
            folder.mkdir()
            for file in sorted((self.path / "all").iterdir())[::step]:
                (folder / file.name).symlink_to(file)
        return folder

    def step(self, rate_hz: float) -> int:
        """Instants of the grid from one frame of a camera to the next."""
        return find_step(rate_hz, self.grid_hz, len(self.truths))

    def place(
        self, shown: Sequence[tuple[int, int]], rate_hz: float
    ) -> Iterator[tuple[int, Mapping[str, Result]]]:
        """Place the truth in time: of each frame shown, and evenly from one to the next.

        `shown` are stamps and indices of frames, in order. The world thus keeps the camera's time,
        also where that came late.
        """
        step = self.step(rate_hz)
        for (stamp_ns, index), (next_ns, _) in itertools.pairwise(shown):
            for part in range(step):
                yield stamp_ns + (next_ns - stamp_ns) * part // step, self.truths[index + part]


def count_instants(grid_hz: float, seconds: float) -> int:
    """Count the instants of a drive."""
    return round(seconds * grid_hz)


def find_step(rate_hz: float, grid_hz: float, instants: int) -> int:
    """Find the instants from one frame to the next; `BenchmarkError` where none is a frame's."""
    step = grid_hz / rate_hz
    if step != round(step) or instants % round(step):
        raise BenchmarkError(
            f"a camera of {rate_hz:g} Hz does not fit a grid of {grid_hz:g} Hz and "
            f"{instants} instants"
        )
    return round(step)


def read_shown(path: Path) -> list[tuple[int, int]]:
    """Read the stamps and the indices of the frames that a camera played."""
    # A truncated last line is left out.
    lines = path.read_text(encoding="ascii").split("\n")[:-1]
    return [(int(stamp), int(Path(file).stem)) for stamp, _, file in map(str.split, lines)]


def _measure_offline(
    tasks: Sequence[TaskConfig], drives: Collection[Drive], threads: int
) -> dict[str, float | None]:
    """Measure the full networks on all instants of the drives as if they took no time."""
    found = {}
    for config in tasks:
        metric = StreamingMetric(KINDS[config.name], len(builtin.labels(config.name)))
        with ExitStack() as stack:
            full = f"full@{choose_default(open_model(config)).backend}-fp32"
            task = load_task(stack, replace(config, variants=(full,)), threads=threads)
            pipeline = task.variants.pipelines[task.default]
            for drive in drives:
                for file, truth in zip(
                    sorted((drive.path / "all").iterdir()), drive.truths, strict=True
                ):
                    work = Work(Frame(read_image(file), "bgr8", 0, 0))
                    pipeline.run(work)
                    assert work.result is not None
                    metric.add(truth[config.name], thin_out(work.result))
        found[config.name] = metric.to_dict()["value"]
        say(f"streaming: {config.name} offline: {found[config.name]:.3f}")
    return found


# -- the cells ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A rate of the camera and a load, the time of the third network, and the deadline.

    That is a multiple of the work of a frame, from its capture to the publication of a result.
    """

    rate_hz: float
    load: float
    companion_ms: float
    deadline_ms: float


@dataclass(eq=False)
class Side:
    """Figures of one side in one cell: results, judged, also by drive, and frames."""

    metrics: dict[str, StreamingMetric] = field(default_factory=lambda: _make_metrics())
    by_round: dict[str, list[float | None]] = field(
        default_factory=lambda: {name: [] for name in KINDS}
    )
    rounds: Rounds = field(default_factory=Rounds)
    stamps_ns: list[int] = field(default_factory=list)


def _make_metrics() -> dict[str, StreamingMetric]:
    return {name: StreamingMetric(kind, len(builtin.labels(name))) for name, kind in KINDS.items()}


def _find_variants(
    tasks: Sequence[TaskConfig], args: argparse.Namespace, *, build: bool
) -> list[str]:
    """Name the variants that both networks are compared in; built, where a policy wants them."""
    library = Library(args.engine_cache)
    names: list[str] = []
    for config in tasks:
        model = open_model(config)
        names = name_variants(args.variants, model)
        if build or any(not name.startswith("full") for name in names):
            build_missing(replace(config, variants=tuple(names)), model, library, args.threads)
    return names


def _specify(
    side: str, cell: Cell, tasks: Sequence[TaskConfig], variants: Sequence[str],
    peer: Peer | None, folder: Path, args: argparse.Namespace,
) -> ConsumerSpec:  # fmt: skip
    """Specify the consumer of one side."""
    chosen = (side,) if side in variants else tuple(variants) if side in SIDES else ()
    policy, mode = SIDES.get(side, ("static", MODES[0]))
    spin = f"null:{cell.companion_ms:.3f},classification,spin"
    companion = configure(COMPANION, spin, kind="classification")
    own = [replace(task, variants=chosen) for task in tasks]
    together = [*own, *([companion] if cell.companion_ms >= 0.1 else [])]
    return ConsumerSpec(
        tuple(replace(task, expected_frequency=cell.rate_hz) for task in together),
        args.threads,
        cell.deadline_ms - args.margin_ms,
        folder / "log",
        follows_load=True,
        results=folder / "results",
        policy=policy,
        mode=mode,
        peer=peer,
    )


def _measure_cell(
    cell: Cell,
    tasks: Sequence[TaskConfig],
    variants: Sequence[str],
    sides: Sequence[str],
    peer: Peer | None,
    drives: Mapping[int, Drive],
    folder: Path,
    args: argparse.Namespace,
) -> dict[str, Side]:
    """Play every drive to every side."""
    figures = {side: Side() for side in sides}
    stamps, received = folder / "stamps", folder / "received"
    for number, (seed, drive) in enumerate(drives.items()):
        played: list[tuple[str, Played, list[Any]]] = []
        source = f"images:{drive.folder(cell.rate_hz)}"
        with (
            Child(python_command(NODES, "camera", source, repr(cell.rate_hz), str(stamps))),
            Child(python_command(NODES, "listener", str(received))),
        ):
            for side in order(sides, number):
                spec = _specify(side, cell, tasks, variants, peer, folder, args)
                try:
                    window = play(side, spec, args.seconds)
                except BenchmarkError as error:
                    say(f"streaming: {side}: {error}")
                    figures[side].rounds.failures.append(str(error))
                    continue
                assert spec.results is not None
                results = pickle.loads(spec.results.read_bytes())
                judged = [row for row in window.rows if row.task != COMPANION]
                played.append((side, window._replace(rows=judged), results))
        shown = read_shown(stamps)
        instants = list(drive.place(shown, cell.rate_hz))
        for side, window, results in played:
            one = figures[side]
            one.rounds.played.append(window)
            one.stamps_ns += [t for t, _ in shown if window.first_ns <= t <= window.last_ns]
            of_round = _make_metrics()
            for task, metric in one.metrics.items():
                truths = [
                    Timed(t, truth[task])
                    for t, truth in instants
                    if window.first_ns <= t <= window.last_ns
                ]
                found = [Timed(t, result) for name, t, result in results if name == task]
                for each in (metric, of_round[task]):
                    each.add_stream(truths, found)
                one.by_round[task].append(of_round[task].to_dict()["value"])
        say(f"streaming: {cell.rate_hz:g} Hz, load {cell.load:g}: drive {seed} played")
    if peer is not None:
        check_stamps(figures[PEER].rounds, figures[PEER].stamps_ns)
    return figures


def _describe_side(side: str, one: Side, deadline_ns: int) -> dict[str, Any]:
    """Describe a side; of a peer nothing is comparable to all networks of the others."""
    described = describe(one.rounds, one.stamps_ns, len(KINDS), deadline_ns)
    names = ["seconds", "frames", "published", "age_ms", "outcomes", "failures", "restarts"]
    if side == PEER:
        names = ["seconds", "failures", "restarts"]
    return {
        "accuracy": {
            name: {**metric.to_dict(), "by_round": one.by_round[name]}
            for name, metric in one.metrics.items()
            if side != PEER or name == DETECTOR
        },
        **{name: described[name] for name in names},
    }


def judge_cell(
    cell: Cell,
    figures: Mapping[str, dict[str, Any]],
    offline: Mapping[str, float | None],
    variants: Collection[str],
) -> dict[str, Any]:
    """Compare ours with the naive node and a peer, and all with the best variant and offline."""
    for one in figures.values():
        for task, found in one["accuracy"].items():
            found["left"] = _divide(found["value"], offline[task])
    values = {side: one["accuracy"][DETECTOR]["value"] for side, one in figures.items()}
    sound = [side for side in variants if not figures[side]["failures"]]
    best = max((values[side] for side in sound if values[side] is not None), default=None)
    for side, one in figures.items():
        one["to_best_variant"] = _divide(values[side], best)
    others = [side for side in (NAIVE, PEER) if side in figures]
    bar = FACTOR_BAR if cell.load >= FACTOR_FROM_LOAD else 1.0
    bars = [(OURS, side, bar) for side in others]
    if CHOOSER in figures and best is not None:
        bars += [(CHOOSER, side, CHOOSER_BAR) for side in sound]
    judged = {OURS, *others, *(side for side, _, _ in bars)}
    failed = any(figures[side]["failures"] for side in judged)
    by_round = {
        side: [value or 0.0 for value in one["accuracy"][DETECTOR]["by_round"]]
        for side, one in figures.items()
    }
    compared: dict[str, Any] = {}
    verdicts: list[Verdict] = [False] if failed else []
    for side, other, least in bars if not failed else ():
        interval = compare(by_round[side], by_round[other])
        # Nothing found is no better than nothing found.
        some = Interval.of(by_round[side]).judge(least=math.ulp(0.0))
        verdicts += [verdict := judge_all([some, interval.judge(least=least)])]
        compared.setdefault(side, {})[other] = {**interval.to_dict(), "passed": verdict}
    return {
        **asdict(cell),
        "sides": dict(figures),
        **{f"ours_to_{side}": _divide(values[OURS], values[side]) for side in others},
        "ours_to_best_variant": figures[OURS]["to_best_variant"],
        "compared": compared,
        "passed": judge_all(verdicts),
    }


def _divide(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each cell and side."""
    alone = ", ".join(f"{k} {v:.1f} ms" for k, v in result["execution_alone_ms"].items())
    offline = ", ".join(
        f"{name} {math.nan if value is None else value:.3f}"
        for name, value in result["offline"].items()
    )
    rows = [
        {**cell, **figures, "side": side}
        for cell in result["cells"]
        for side, figures in cell["sides"].items()
    ]

    def show_bars(row: Mapping[str, Any]) -> str:
        return say_shortly(row["passed"]) if row["side"] == OURS else ""

    other_nodes = "naive node's" + (" or the peer's" if PEER in result else "")
    chooser = (
        f", that of {CHOOSER} at least {CHOOSER_BAR:g} times the best variant's"
        if CHOOSER_KEY in result["bars"] and CHOOSER in result["policies"]
        else ""
    )
    left_out = ", ".join(f"{c['rate_hz']:g} Hz at {c['load']:g}x" for c in result["left_out"])
    cell_columns = (
        ("camera", lambda row: f"{row['rate_hz']:g} Hz"),
        ("load", lambda row: f"{row['load']:g}x"),
    )
    failures = [
        f"{row['rate_hz']:g} Hz, {row['load']:g}x, {row['side']}: failed, {failure}"
        for row in rows
        for failure in row["failures"]
    ]
    return [
        f"alone: {alone}; offline: {offline}; drives {', '.join(map(str, result['seeds']))}, "
        f"{result['seconds']:g} s of each for every side; truth at {result['grid']:g} Hz",
        tabulate(
            rows,
            *cell_columns,
            "side, sAP=accuracy.detector.value:.3f, left=accuracy.detector.left:.1%",
            "mIoU=accuracy.segmenter.value:.3f, left=accuracy.segmenter.left:.1%",
            "p50 age ms=age_ms.p50:.1f, p99 age ms=age_ms.p99:.1f",
            ("published/s", _show_published),
            *(
                (f"x {other}", partial(_show_ratio, other))
                for other in (NAIVE, PEER)
                if other == NAIVE or PEER in result
            ),
            *(
                ["x best variant=to_best_variant:.2f"]
                if any("to_best_variant" in row for row in rows)
                else []
            ),
            ("bars", show_bars),
        ),
        f"left out, since the two networks alone are more: {left_out}" if left_out else "",
        *show_peer(
            result,
            [
                {"rate_hz": cell["rate_hz"], "load": cell["load"], "side": side, **figures}
                for cell in result["cells"]
                for side, figures in cell.get(DETECTOR, {}).items()
            ],
            *cell_columns,
        ),
        "\n".join(failures),
        f"bars: sAP of ours above 0, not below the {other_nodes}, and {FACTOR_BAR:g} times as "
        f"large from a load of {FACTOR_FROM_LOAD:g} on{chooser}: {say_verdict(result['passed'])}",
    ]


def _show_published(row: Mapping[str, Any]) -> str | None:
    if "published" not in row or not row["seconds"]:
        return None
    return f"{row['published'] / row['seconds']:.1f}"


def _show_ratio(other: str, row: Mapping[str, Any]) -> str | None:
    if row["side"] != OURS:
        return ""
    if (found := row.get("compared", {}).get(OURS, {}).get(other)) is not None:
        return show_interval(found)
    ratio = row[f"ours_to_{other}"]
    return None if ratio is None else f"{ratio:.2f}"
