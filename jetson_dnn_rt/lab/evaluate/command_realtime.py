"""``evaluate --mode realtime``: the bags played to the executor, deadlines enforced."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, BinaryIO

from jetson_dnn_rt.backends.threads import count_cores
from jetson_dnn_rt.cli.progress import PhaseProgress
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policy import PolicySettings
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.lab.evaluate.arrivals import Arrivals, plan_arrivals
from jetson_dnn_rt.lab.evaluate.bags import open_image_bag
from jetson_dnn_rt.lab.evaluate.chunk import TaskSpec
from jetson_dnn_rt.lab.evaluate.command_bags import (
    RESULTS,
    TRACE,
    Stream,
    find_usual_period_ns,
    inspect_bags,
)
from jetson_dnn_rt.lab.evaluate.command_sequential import describe_task
from jetson_dnn_rt.lab.evaluate.command_tasks import STATIC, TaskFile, read_task_file
from jetson_dnn_rt.lab.evaluate.core_split import share_cores
from jetson_dnn_rt.lab.evaluate.deciding import make_coordinator
from jetson_dnn_rt.lab.evaluate.plan import OpenTask
from jetson_dnn_rt.lab.evaluate.realtime import (
    Playback,
    WarmUp,
    play,
    read_first,
    warm_up,
)
from jetson_dnn_rt.lab.evaluate.report import describe_bags, format_replay
from jetson_dnn_rt.lab.evaluate.simulated import WARM_UP
from jetson_dnn_rt.models.heads.result_lines import describe_result
from jetson_dnn_rt.runtime.delivery import Observer
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.tasks import JobRecord, Work
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.metadata import describe_run
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import TraceMetadata
from jetson_dnn_rt.traces.summary import RunSummary
from jetson_dnn_rt.traces.writer import TraceWriter


def evaluate(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Replay every bag as often as is asked for; the summary, and the text for people."""
    begin_s = time.monotonic()
    file = read_task_file(args)
    streams = inspect_bags(args)
    plans = [
        plan_arrivals(
            stream.log_times_ns,
            speed=args.speed or 1.0,
            rate_hz=args.rate or 0.0,
            period_ns=find_usual_period_ns(streams),
        )
        for stream in streams
    ]
    if args.workers:
        file = file.with_workers(args.workers)
    settings = file.settings
    summary = RunSummary(file.parameters)
    playbacks: list[list[Playback]] = [[] for _ in streams]
    with PhaseProgress() as progress, ExitStack() as stack:
        progress.say(f"loading {', '.join(file.parameters)}")
        specs = file.make_specs(plans[0].period_ns)
        if file.wants_trial and not args.workers:
            settings, specs = _share_cores(file, settings, specs, streams[0], progress.say)
        config = PerceptionConfig((), process=settings)
        session = stack.enter_context(Session(config, log=_Log(progress)))
        tasks = _load(session, specs)
        for task in tasks:
            for reason in task.left_out.values():
                progress.say(f"{task.spec.name}: {reason}")
        deadlines_ns = {spec.name: spec.deadline_ns for spec in specs}
        room = TraceRoom(args.trace_limit_mb, ring=False)
        rounds = list(range(len(streams))) * (args.repeat or 1)
        first, switches = 0, 0
        failures: list[str] = []
        for number, place in enumerate(rounds):
            stream, arrivals = streams[place], plans[place]
            progress.begin(stream.name, number + 1, len(rounds))
            with open_image_bag(stream.bag, stream.topic) as bag:
                times = warm_up(bag, tasks)
                if not number:
                    session.prepare()
                metadata = _describe(args, file, settings, stream, tasks, times)
                decider = _choose_decider(file, session, deadlines_ns, arrivals)
                with _recording(args, metadata, room, stream, tasks, number, first) as record:
                    playback = play(
                        bag,
                        session,
                        deadlines_ns,
                        arrivals,
                        _observe(summary, record),
                        selector=decider,
                        count=stream.messages,
                        first_sequence=first,
                        progress=lambda done, total: progress("frames", done, total),
                    )
            playbacks[place].append(playback)
            if decider is not None:
                switches += decider.switches
                failures += [decider.failure] if decider.failure else []
            first += stream.messages
    result = _summarize(args, streams, plans, playbacks, summary)
    result |= {"policy": file.coordinator.policy, "switches": switches}
    if failures:
        raise ConfigurationError(f"policy {file.coordinator.policy} failed: {failures[0]}")
    result["seconds"] = round(time.monotonic() - begin_s, 1)
    return result, _format(result)


def _share_cores(
    file: TaskFile,
    settings: ProcessConfig,
    specs: Sequence[TaskSpec],
    stream: Stream,
    log: Callable[[str], None],
) -> tuple[ProcessConfig, list[TaskSpec]]:
    """Workers and threads as a trial on the first frame of a bag finds them best."""
    with open_image_bag(stream.bag, stream.topic) as bag:
        frame = read_first(bag)[0]
    fixed = {name: values.fixed_threads for name, values in file.parameters.items()}
    split, shared = share_cores(specs, fixed, frame, count_cores(), settings.discipline, log)
    return replace(settings, workers=split.workers), shared


def _choose_decider(
    file: TaskFile, session: Session, deadlines_ns: Mapping[str, int], arrivals: Arrivals
) -> Coordinator | None:
    """The coordinator; None where every task runs its own variant."""
    given = file.coordinator
    if given.policy == STATIC:
        return None
    return make_coordinator(
        session, deadlines_ns, arrivals.period_ns, given.policy, PolicySettings.of(given)
    )


def _load(session: Session, specs: Sequence[TaskSpec]) -> list[OpenTask]:
    tasks = []
    with session.executor.realtime.as_worker():
        for spec in specs:
            task = OpenTask(spec, lenient=True, find_like=session.batches.find_like)
            session.adopt(task)
            tasks.append(task)
    return tasks


class _Log:
    """Shows what a session logs among the progress."""

    def __init__(self, progress: PhaseProgress) -> None:
        self.info = self.warning = self.error = progress.say


def _observe(summary: RunSummary, record: Observer) -> Observer:
    def observe(job: JobRecord, work: Work) -> None:
        summary.add(job)
        record(job, work)

    return observe


class _Recorder:
    """Writes every job of a replay, and what was found, where a folder was asked for."""

    def __init__(
        self,
        writer: TraceWriter,
        lines: BinaryIO,
        stream: Stream,
        tasks: Sequence[OpenTask],
        first: int,
    ) -> None:
        self._writer, self._lines = writer, lines
        self._stream, self._first = stream.name, first
        self._models = {task.spec.name: task.model for task in tasks}
        self.error: OSError | None = None

    def observe(self, job: JobRecord, work: Work) -> None:
        self._writer.write(job, work.frame.stamp_ns, wait=True)
        model = self._models[job.task]
        line = {
            "stream": self._stream,
            "frame": job.sequence - self._first,
            "stamp_ns": work.frame.stamp_ns,
            "task": job.task,
            "variant": job.variant,
            "outcome": job.outcome.value,
            **describe_result(work.result, model.kind, model.labels),
        }
        try:
            self._lines.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            # On the delivery thread, which must go on; said at the end.
            self.error = error


def _ignore(job: JobRecord, work: Work) -> None:
    pass


@contextmanager
def _recording(
    args: argparse.Namespace,
    metadata: TraceMetadata,
    room: TraceRoom,
    stream: Stream,
    tasks: Sequence[OpenTask],
    number: int,
    first: int,
) -> Iterator[Observer]:
    """An observer that writes; the first of an evaluation removes what an earlier one left."""
    if not args.output:
        yield _ignore
        return
    log = ClockLog(str(metadata.platform.get("configuration", "")))
    try:
        writer = TraceWriter(
            args.output / TRACE, metadata, clocks=log.at, room=room, replace=number == 0
        )
        lines = (args.output / RESULTS).open("ab" if number else "wb")
    except OSError as error:
        raise ConfigurationError(f"cannot write {error.filename}: {error.strerror}") from error
    recorder = _Recorder(writer, lines, stream, tasks, first)
    try:
        with writer:
            yield recorder.observe
    finally:
        try:
            lines.close()
        except OSError as error:
            recorder.error = error
    failure = recorder.error or writer.error
    if writer.lost or failure is not None:
        raise SourceError(f"results or trace are incomplete: {writer.lost} jobs lost, {failure}")


def _describe(
    args: argparse.Namespace,
    file: TaskFile,
    settings: ProcessConfig,
    stream: Stream,
    tasks: Sequence[OpenTask],
    times: WarmUp,
) -> TraceMetadata:
    parameters = {
        **file.to_dict(),
        "mode": args.mode,
        "bags": [stream.to_dict()],
        "workers": settings.workers,
        "discipline": settings.discipline,
        "rate_hz": args.rate,
        "speed": args.speed,
        WARM_UP: times,
    }
    described = {task.spec.name: describe_task(task.fix(), stream.name) for task in tasks}
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
        bad = [{"message": m.index, "reason": m.reason} for m in played[0].bad[:20]]
        described = {
            **stream.to_dict(),
            "frames": played[0].frames,
            "unreadable": len(played[0].bad),
            "bad": bad,
            "period_ms": plan.period_ns / 1e6,
            "clock_jumps": plan.jumps,
            "behind": sum(playback.behind for playback in played),
            "schedulability": [str(playback.verdict) for playback in played],
        }
        if plan.jumps:
            described["notes"] = [
                *stream.notes,
                f"the recorded times jump {plan.jumps} times: these frames come a period after "
                "the ones before",
            ]
        bags.append(described)
    frames = sum(p.frames for played in playbacks for p in played)
    lost = sum(
        stream.messages - playback.frames - len(playback.bad)
        for stream, played in zip(streams, playbacks, strict=True)
        for playback in played
    )
    tasks = summarize_jobs(summary)
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


def summarize_jobs(summary: RunSummary) -> dict[str, Any]:
    """Each task's counts and times, with its miss ratio and why frames were not met."""
    return {
        name: {
            **task.to_dict(),
            "miss_ratio": None if task.met_ratio is None else 1.0 - task.met_ratio,
            "reasons": dict(task.reasons),
        }
        for name, task in summary.tasks.items()
    }


def miss_ratio(summary: RunSummary) -> float | None:
    """Share of all jobs that were not met; None without any."""
    released = sum(task.released for task in summary.tasks.values())
    met = sum(round((task.met_ratio or 0.0) * task.released) for task in summary.tasks.values())
    return 1.0 - met / released if released else None


def _format(result: dict[str, Any]) -> str:
    lines = [format_replay(result), *describe_bags(result)]
    for bag in result["bags"]:
        lines += [f"  {verdict}" for verdict in dict.fromkeys(bag["schedulability"])]
        if bag["behind"]:
            lines.append(
                f"  {bag['behind']} frames were released late: the bag is read slower than it "
                "plays; their deadlines count from their release"
            )
    return "\n".join(lines)
