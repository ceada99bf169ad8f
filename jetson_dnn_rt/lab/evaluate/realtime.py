# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""``evaluate --mode realtime``: bags played at their recorded times, as on the robot.

The tasks run in a `Session`, as in the nodes: the same engine and workers, batches, slow-downs and
restarts; only DDS is missing. Messages are read and decoded ahead on a thread of their own, as a
camera driver would.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from jetson_dnn_rt.cameras.bags.image_bag import BadMessage, BagImage, ImageBag, open_image_bag
from jetson_dnn_rt.cameras.stamps import StampClock
from jetson_dnn_rt.cli.progress import PhaseProgress
from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.task import AUTO
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policy import find_policy
from jetson_dnn_rt.coordinator.tables.library_tables import make_clock_table
from jetson_dnn_rt.errors import ConfigurationError, SourceError, naming
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.evaluate.plan import STATIC, OpenTask, TaskFile, TaskSpec, read_task_file
from jetson_dnn_rt.lab.evaluate.report import (
    describe_bags,
    describe_stream,
    format_replay,
    format_streaming,
    miss_ratio,
    summarize_jobs,
)
from jetson_dnn_rt.lab.evaluate.streams import (
    RESULTS,
    TRACE,
    Arrivals,
    Stream,
    find_usual_period_ns,
    inspect_bags,
    name_frames,
    plan_arrivals,
)
from jetson_dnn_rt.lab.streaming.judge import StreamingJudge
from jetson_dnn_rt.lab.streaming.truth import Truth
from jetson_dnn_rt.models.heads.result_lines import describe_frame, describe_result
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.runtime.task import StageTimes, Task
from jetson_dnn_rt.runtime.verdict_watch import judge_tasks
from jetson_dnn_rt.scheduling.selection import Selector
from jetson_dnn_rt.scheduling.weakly_hard import WeaklyHardView
from jetson_dnn_rt.tasks import JobRecord, Work
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.metadata import describe_run
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import SHARING, WARM_UP, TraceMetadata
from jetson_dnn_rt.traces.summary import RunSummary
from jetson_dnn_rt.traces.writer import TraceWriter

READ_AHEAD = 8
"""Decoded frames held in memory until their time."""
WARM_UP_FRAMES = 8
DRAIN_TIMEOUT_S = 60.0

ALONE = (1.0,)
"""Assumed slow-down of tasks side by side where none was measured; learnt as tasks run."""

Observer = Callable[[JobRecord, Work], None]

WarmUp = Mapping[str, Mapping[str, StageTimes]]
"""Times of the warm-up, by task and variant."""


@dataclass(frozen=True)
class Playback:
    """Replay of one bag: `frames` were released, the messages in `bad` are not frames.

    Frames in `behind` were released more than half a period late, because they were not read in
    time: their deadlines count from their release. `verdict` uses the budgets at the end, and says
    how it fits with the frames that were met. `limits` are the weakly hard limits, by task.
    """

    frames: int
    bad: list[BadMessage]
    behind: int
    verdict: str
    limits: Mapping[str, WeaklyHardView] = field(default_factory=dict)


def warm_up(bag: ImageBag, tasks: Iterable[Task]) -> WarmUp:
    """Run every variant on the first frames of a bag: the first budgets come from these times.

    Raises
    ------
    SourceError
        When no message is a frame.
    """
    frames = read_first(bag)
    for task in tasks:
        task.warm_up(frames)
    return {task.name: task.warm_up_times_ns for task in tasks}


def play(
    bag: ImageBag,
    session: Session,
    deadlines_ns: Mapping[str, int],
    arrivals: Arrivals,
    observer: Observer,
    *,
    selector: Selector | None = None,
    count: int | None = None,
    first_sequence: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Playback:
    """Release every frame of a bag at its time and run what the deadlines allow.

    The session's tasks are loaded, warmed up and not active; all receive every frame. The executor
    is restarted, so nothing learnt in an earlier replay is used. Only the first `count` messages
    are played; the first is number `first_sequence` among the frames of all replays. The observer
    is called for every finished job, on the delivery thread. Without a selector each task runs its
    first variant.

    Raises
    ------
    SourceError
        When a stage is still running long after the last frame.
    """
    clock = session.clock

    def observe(record: JobRecord, work: Work, result: Result | None) -> None:
        observer(record, work)

    session.stop()
    session.start()
    with ExitStack() as stack:
        stack.callback(session.stop)
        executor = session.executor
        for name, deadline_ns in deadlines_ns.items():
            session.activate(name, observe, period_ns=arrivals.period_ns, deadline_ns=deadline_ns)
        if selector is not None:
            executor.set_selector(selector)
        session.commit()
        total = bag.count if count is None else min(count, bag.count)
        messages = stack.enter_context(closing(_read_ahead(bag, total)))
        ages = RecordedAges(bag.topic, session.tasks.values())
        frames, behind = 0, 0
        bad: list[BadMessage] = []
        begin_ns = clock.now_ns() + arrivals.period_ns
        for message in messages:
            if isinstance(message, BadMessage):
                bad.append(message)
                continue
            due_ns = begin_ns + int(arrivals.times_ns[message.index])
            clock.sleep_until_ns(due_ns)
            behind += clock.now_ns() - due_ns > arrivals.period_ns // 2
            age_ns, doubt = ages.find(message)
            sequence = first_sequence + message.index
            frame = replace(message.frame, sequence=sequence, doubt=doubt)
            session.submit(frame, capture_ns=due_ns - age_ns)
            frames += 1
            progress(frames, total)
        if not session.wait_idle(DRAIN_TIMEOUT_S):
            raise SourceError(f"a job did not end within {DRAIN_TIMEOUT_S:g} s")
        counts = {name: executor.snapshot(name) for name in deadlines_ns}
        met = {name: task.met_and_all for name, task in counts.items()}
        limits = {name: task.limit for name, task in counts.items() if task.limit is not None}
        return Playback(frames, bad, behind, judge_tasks(executor).explain(met), limits)


class RecordedAges:
    """Ages of a bag's frames when they were logged, as the nodes find them when they arrive.

    ConfigurationError when tasks differ in `stamp_clock`: they are given the same frames.
    """

    def __init__(self, name: str, tasks: Iterable[Task]) -> None:
        clocks = sorted({task.config.stamp_clock for task in tasks})
        if len(clocks) > 1:
            text = f"stamp_clock of all tasks of one bag must be the same: {' and '.join(clocks)}"
            raise ConfigurationError(text, "stamp_clock")
        self._logged_ns = 0
        self._stamps = StampClock(
            name, lambda: self._logged_ns, synchronised=clocks != ["unsynchronised"]
        )

    def find(self, image: BagImage) -> tuple[int, str]:
        """Return the age of the next frame, and the doubt about it, as `Frame` has it."""
        if image.frame.file:  # a photo: it has no stamp of a camera
            return 0, ""
        logged_ns = self._logged_ns = image.log_time_ns
        capture_ns, doubt = self._stamps.judge(image.frame.stamp_ns, logged_ns)
        return logged_ns - capture_ns, doubt


def read_first(bag: ImageBag) -> list[Frame]:
    """Read the first frames, for the warm-up."""
    frames: list[Frame] = []
    for message in bag.read(0, bag.count):
        if not isinstance(message, BadMessage):
            frames.append(message.frame)
        if len(frames) == WARM_UP_FRAMES:
            break
    if not frames:
        raise SourceError(f"no message of {bag.topic} is a frame")
    return frames


def _find_bad(bag: ImageBag, count: int) -> list[BadMessage] | None:
    """The messages of a bag without a frame; None where there is one."""
    bad = []
    for message in bag.read(0, count):
        if not isinstance(message, BadMessage):
            return None
        bad.append(message)
    return bad


def _read_ahead(bag: ImageBag, count: int) -> Generator[BagImage | BadMessage, None, None]:
    """Read and decode messages of a bag on a thread of its own."""
    messages = bag.read(0, count)
    with ThreadPoolExecutor(1, thread_name_prefix="bag") as reader:
        ahead = deque(reader.submit(next, messages, None) for _ in range(READ_AHEAD))
        while (message := ahead.popleft().result()) is not None:
            ahead.append(reader.submit(next, messages, None))
            yield message


def make_coordinator(
    session: Session, deadlines_ns: Mapping[str, int], period_ns: int, config: CoordinatorConfig
) -> Coordinator:
    """Make a coordinator for some tasks, at the present clocks, which are not changed.

    It decides at stage boundaries, as it does beside the nodes. Times and accuracy come from the
    tasks' library; missing times come from the warm-up.

    Raises
    ------
    ConfigurationError
        When there is no such policy, or a task has no variant of known accuracy.
    """
    with detect() as platform:
        clocks = make_clock_table(platform.space, platform.read())
    tables = [
        session.tasks[name].make_table(deadline_ns, period_ns)
        for name, deadline_ns in deadlines_ns.items()
    ]
    shared: dict[str, Any] = {
        "workers": session.split.workers,
        "interference": tuple(session.cohort_slowdown.values()) or ALONE,
    }
    policy = find_policy(config.policy)(clocks, tables, config, **shared)
    return Coordinator(clocks, tables, policy, **shared)


# -- The command ---------------------------------------------------------------------------------


def evaluate(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Replay every bag as often as requested; return the summary, and a text for people."""
    file = read_task_file(args)
    streams = inspect_bags(args)
    truth = Truth(args.streaming.expanduser(), name_frames(streams)) if args.streaming else None
    rate = {"speed": args.speed or 1.0, "rate_hz": args.rate or 0.0}
    usual_ns = find_usual_period_ns(streams)
    plans = [plan_arrivals(s.log_times_ns, **rate, period_ns=usual_ns) for s in streams]
    if args.workers:
        file = file.with_workers(args.workers)
    playbacks: list[list[Playback]] = [[] for _ in streams]
    with PhaseProgress() as progress, ExitStack() as stack:
        progress.say(f"loading {', '.join(task.name for task in file.tasks)}")
        specs = file.make_specs(next(p.period_ns for p in plans if len(p.times_ns)))
        follows_load = file.follows_load and not args.workers
        # Workers that are asked for share the cores whatever the load.
        threads = 0 if args.workers and file.process_threads == AUTO else file.process_threads
        config = PerceptionConfig((), process=file.process, threads=threads)
        session = stack.enter_context(Session(config, log=_Log(progress)))
        if follows_load:
            session.share_cores(len(specs))
        fixed = {task.name for task in file.tasks if task.fixed_threads}
        tasks = _load(session, specs, fixed)
        summary = RunSummary({task.name: task.default for task in tasks})
        for task in tasks:
            for reason in task.left_out.values():
                progress.say(f"{task.name}: {reason}")
        judge = None if truth is None else StreamingJudge(truth, tasks)
        for note in () if truth is None else truth.notes:
            progress.say(note)
        deadlines_ns = {spec.name: spec.deadline_ns for spec in specs}
        room = TraceRoom(args.trace_limit_mb, ring=False)
        rounds = list(range(len(streams))) * (args.repeat or 1)
        first, played, switches = 0, 0, 0
        failures: list[str] = []
        for number, place in enumerate(rounds):
            stream, arrivals = streams[place], plans[place]
            progress.begin(stream.name, number + 1, len(rounds))
            with open_image_bag(stream.bag, stream.topic) as bag:
                bad = _find_bad(bag, stream.messages)
                if bad is not None:
                    progress.say(f"{stream.name}: no message is a frame: nothing is played")
                    playbacks[place].append(Playback(0, bad, 0, "nothing was played"))
                    first += stream.messages
                    continue
                times = warm_up(bag, tasks)
                if not played:
                    period_ns = arrivals.period_ns
                    session.prepare(dict.fromkeys(deadlines_ns, period_ns), deadlines_ns)
                    times = {task.name: task.warm_up_times_ns for task in tasks}
                metadata = _describe(args, file, stream, session, tasks, times)
                decider = None  # every task runs its own variant
                if file.coordinator.policy != STATIC:
                    decider = make_coordinator(
                        session, deadlines_ns, arrivals.period_ns, file.coordinator
                    )
                replay = stream, tasks, played, first
                with _recording(args, summary, metadata, room, *replay) as observer:
                    if judge is not None:
                        observer = judge.observing(stream.name, first, observer)
                    playback = play(
                        bag,
                        session,
                        deadlines_ns,
                        arrivals,
                        observer,
                        selector=decider,
                        count=stream.messages,
                        first_sequence=first,
                        progress=lambda done, total: progress("frames", done, total),
                    )
            playbacks[place].append(playback)
            played += 1
            if judge is not None:
                judge.end_stream()
            if decider is not None:
                switches += decider.switches
                failures += [decider.failure] if decider.failure else []
            first += stream.messages
    if not played:
        reasons = [each.bad[0].reason for (each, *_) in playbacks if each.bad]
        raise SourceError(f"no message of the bags is a frame: {reasons[0]}")
    result = _summarize(args, streams, plans, playbacks, summary)
    result |= {"policy": file.coordinator.policy, "switches": switches}
    if judge is not None:
        result["streaming"] = judge.to_dict()
    if failures:
        raise ConfigurationError(f"policy {file.coordinator.policy} failed: {failures[0]}")
    return result, _format(result)


def _load(session: Session, specs: Sequence[TaskSpec], fixed: Collection[str]) -> list[OpenTask]:
    """Load the tasks; `fixed` have a number of threads of their own."""
    tasks = []
    with session.executor.realtime.as_worker():
        for spec in specs:
            task = OpenTask(
                spec,
                lenient=True,
                find_like=session.batches.find_like,
                narrow_threads=0 if spec.name in fixed else session.split.narrow_threads,
            )
            session.adopt(task)
            tasks.append(task)
    return tasks


class _Log:
    """Log of a session, printed between the lines of progress."""

    def __init__(self, progress: PhaseProgress) -> None:
        self.info = self.warning = self.error = progress.say


@contextmanager
def _recording(
    args: argparse.Namespace,
    summary: RunSummary,
    metadata: TraceMetadata,
    room: TraceRoom,
    stream: Stream,
    tasks: Sequence[OpenTask],
    number: int,
    first: int,
) -> Iterator[Observer]:
    """Open trace and results, if requested; yield an observer that counts and writes jobs.

    The first replay of an evaluation removes the files of an earlier one.
    """
    if not args.output:
        yield lambda job, work: summary.add(job)
        return
    log = ClockLog(str(metadata.platform.get("configuration", "")))
    with naming(args.output):
        given: dict[str, Any] = {"clocks": log.at, "room": room, "replace": number == 0}
        writer = TraceWriter(args.output / TRACE, metadata, **given)
        lines = (args.output / RESULTS).open("ab" if number else "wb")
    models = {task.name: task.model for task in tasks}
    errors: list[OSError] = []

    def observe(job: JobRecord, work: Work) -> None:
        summary.add(job)
        writer.write(job, work.frame.stamp_ns, wait=True)
        model = models[job.task]
        line = {
            "stream": stream.name,
            "frame": job.sequence - first,
            **describe_frame(work.frame),
            "task": job.task,
            "variant": job.variant,
            "outcome": job.outcome.value,
            **describe_result(work.result, model.kind, model.labels, masks=bool(args.masks)),
        }
        try:
            lines.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            # On the delivery thread, which must go on: raised at the end.
            errors.append(error)

    try:
        with writer:
            yield observe
    finally:
        try:
            lines.close()
        except OSError as error:
            errors.append(error)
    failure = errors[-1] if errors else writer.error
    if writer.lost or failure is not None:
        raise SourceError(f"results or trace are incomplete: {writer.lost} jobs lost, {failure}")


def _describe(
    args: argparse.Namespace,
    file: TaskFile,
    stream: Stream,
    session: Session,
    tasks: Sequence[OpenTask],
    times: WarmUp,
) -> TraceMetadata:
    parameters = {**file.to_dict(), "mode": args.mode, "bags": [stream.to_dict()], WARM_UP: times}
    parameters |= {"workers": session.split.workers, SHARING: session.describe_sharing()}
    parameters |= {"rate_hz": args.rate, "speed": args.speed}
    described = {task.name: task.fix().describe(stream.name) for task in tasks}
    return describe_run("evaluate", described, parameters=parameters)


def _summarize(
    args: argparse.Namespace,
    streams: Sequence[Stream],
    plans: Sequence[Arrivals],
    playbacks: Sequence[Sequence[Playback]],
    summary: RunSummary,
) -> dict[str, Any]:
    bags = []
    for stream, plan, played in zip(streams, plans, playbacks, strict=True):
        described = {
            **describe_stream(stream, played[0].frames, played[0].bad),
            "period_ms": plan.period_ns / 1e6,
            "clock_jumps": plan.jumps,
            "behind": sum(playback.behind for playback in played),
            "schedulability": [playback.verdict for playback in played],
        }
        if plan.jumps:
            note = f"the recorded times jump {plan.jumps} times: these frames come a period after "
            described["notes"] = [*stream.notes, f"{note}the ones before"]
        bags.append(described)
    frames = sum(p.frames for played in playbacks for p in played)
    lost = sum(
        stream.messages - playback.frames - len(playback.bad)
        for stream, played in zip(streams, playbacks, strict=True)
        for playback in played
    )
    tasks = summarize_jobs(summary)
    for name, task in tasks.items():
        limits = [p.limits[name] for played in playbacks for p in played if name in p.limits]
        task["met_of"] = None
        if limits:
            violations = sum(limit.violations for limit in limits)
            task["met_of"] = {**limits[0].to_dict(), "violations": violations}
    counted = all(task["released"] == frames for task in tasks.values())
    return {
        "mode": args.mode,
        "frames": sum(bag["frames"] for bag in bags),
        "repeats": args.repeat or 1,
        "lost": lost,
        "bags": bags,
        "tasks": tasks,
        "miss_ratio": miss_ratio(summary),
        "passed": bool(frames) and lost == 0 and counted,
    }


def _format(result: dict[str, Any]) -> str:
    lines = [format_replay(result), *describe_bags(result)]
    lines += [
        f"{name}: met_of [{limit['least']}, {limit['frames']}] was violated at "
        f"{limit['violations']} of the frames"
        for name, task in result["tasks"].items()
        if (limit := task["met_of"]) is not None
    ]
    for bag in result["bags"]:
        lines += [f"  {verdict}" for verdict in dict.fromkeys(bag["schedulability"])]
        if bag["behind"]:
            lines.append(
                f"  {bag['behind']} frames were released late: the bag is read slower than it "
                "plays; their deadlines count from their release"
            )
    if "streaming" in result:
        lines.append(format_streaming(result["streaming"]))
    return "\n".join(lines)
