# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Soak: real frames through the composed process while all that may happen happens; then overload.

A camera, two tasks on it and a coordinator in one process, and a third task with a real network on
a topic (the guest). Every few seconds, drawn by the seed: another policy or deadline, a burst of
hostile images, subscribers that come and go, everything deactivated and activated, or cleaned up
and configured again, one task restarted, a variant added while all run. Memory, threads and
descriptors of the process are sampled once a second. What has happened changes the memory by
itself (a policy has its table, a subscriber its buffers), so it is judged where it can be
compared: in the first ``--steady-frames``, in which nothing happens, and at rests, for which
everything is as it was at the beginning. It ends after ``--frames`` of the camera, or
``--minutes``; then a second process gets five times as much as it can do::

    python test/campaigns/soak.py --minutes 30 --seed 1 --output test/campaigns/results/soak.json

With ``--models builtin`` the tasks on the camera run real networks, too: give a lower ``--rate``.
"""

# ruff: noqa: E402  (ROS reads its environment when it is imported)
from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import program

program.prepare_ros()

import numpy as np
from composed_process import BUILTIN, NULL, TASKS, ComposedProcess, GuestFrames, subscribe
from process_samples import compare_ends, find_slope
from ros_graph import Ros
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Float64
from trace_counts import TracedFrames, read_traces
from vision_msgs.msg import Detection2DArray

from jetson_dnn_rt.config.nodes import POLICIES

PAUSE_S = 3.0
"""Mean time between two events."""

TOPICS = (
    (Detection2DArray, "/detections"), (Image, "/class_mask"), (Image, "/image_raw"),
    (CompressedImage, "/image_raw/compressed"), (Image, "/debug_image"),
    (Float64, "/detector/debug/lag_ms"), (Float64, "/segmenter/debug/p99_ms"),
)  # fmt: skip

WARM_UP = 0.2
"""First share of the frames that a slope does not count: allocators fill their arenas."""

EVENTS_BETWEEN_RESTS, REST_FRAMES, REST_SAMPLES = 10, 500, 5
LEAST_RESTS = 6
"""Rests after the warm-up below which their slope says nothing."""

MOST_MB = 5.0
"""Slope of the memory per 100,000 frames; a leak of 60 bytes a frame is more."""

LEAST_SAMPLES = 60
LEAST_FRAMES = 20_000
"""Frames below which a slope (after the warm-up), or a share of them, says nothing."""

OVERLOAD = 5.0
OVERLOAD_STAGE_MS, OVERLOAD_DEADLINE_MS = 25.0, 60.0
MARGIN_MS = 20.0
"""Between two stages the system may let a thread wait: with other work on all cores, this long."""

WITHIN = 0.999
"""Share of the frames that keep the bound: a machine that does other things may stand still."""


class Events:
    """What happens to the process, drawn by a seed."""

    def __init__(
        self, ros: Ros, process: ComposedProcess, rng: random.Random, guest: GuestFrames | None
    ) -> None:
        self._ros, self._process, self._rng, self._guest = ros, process, rng, guest
        self._subscriptions: list[Callable[[], None]] = []
        self.received = 0
        self.rests: list[tuple[float, float]] = []  # frames of the camera, MB then
        self.counts: Counter[str] = Counter()
        weights: dict[Callable[[], None], int] = {
            self.change_policy: 6, self.change_deadline: 2, self.change_subscribers: 6,
            process.restart: 1, process.restart_task: 2, process.reconfigure: 1,
        }  # fmt: skip
        if guest is not None:
            weights |= {self.spoil_images: 4, process.add_variant: 1}
        self._events, self._weights = list(weights), list(weights.values())

    def happen(self) -> None:
        """Let one of them happen, and have a rest now and then."""
        (event,) = self._rng.choices(self._events, self._weights)
        event()
        self.counts[event.__name__] += 1
        if self.counts.total() % EVENTS_BETWEEN_RESTS == 0:
            self._rest()

    def _rest(self) -> None:
        """Make everything as it was at the beginning, and note the memory then."""
        process = self._process
        self.forget_subscribers()
        process.set("/coordinator", policy="static")
        for task in TASKS:
            process.set(f"/{task}", deadline_ms=process.deadline_ms)
        process.reconfigure()
        process.wait_for_frames(REST_FRAMES)
        process.sampler.wait_for(REST_SAMPLES)
        series = process.sampler.series
        memory_mb = statistics.median(series["anonymous_mb"][-REST_SAMPLES:])
        self.rests.append((series["frames"][-1], memory_mb))

    def change_policy(self) -> None:
        """Another policy decides; one that cannot with these tables is refused."""
        self._process.set("/coordinator", policy=self._rng.choice(list(POLICIES)))

    def change_deadline(self) -> None:
        """Another deadline of a task on the camera."""
        deadline_ms = self._rng.choice((20.0, 50.0, 100.0))
        self._process.set(f"/{self._rng.choice(TASKS)}", deadline_ms=deadline_ms)

    def change_subscribers(self) -> None:
        """One more, or all go."""
        if len(self._subscriptions) == 3:
            self.forget_subscribers()
        else:
            kind, topic = self._rng.choice(TOPICS)
            self._subscriptions.append(subscribe(self._ros, kind, topic, self._take))

    def forget_subscribers(self) -> None:
        """All go."""
        while self._subscriptions:
            self._subscriptions.pop()()

    def spoil_images(self) -> None:
        """Hostile images for the guest."""
        assert self._guest is not None
        for _ in range(self._rng.randint(1, 20)):
            self._guest.spoil(self._rng.randrange(1 << 31))

    def _take(self, message: Any) -> None:
        self.received += 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this campaign."""
    add = parser.add_argument
    add("--frames", type=int, default=100_000, help="of the camera, after which it ends")
    add("--steady-frames", type=int, default=30_000, help="of them before anything happens")
    add("--rate", type=float, default=200.0, help="of the camera in Hz")
    add("--models", choices=("null", "builtin"), default="null", help="of the camera's tasks")
    add("--no-guest", action="store_true", help="no task with a real network on a topic")
    add("--overload-minutes", type=float, default=10.0, help="of the second part; 0 = none")


def run(args: argparse.Namespace) -> program.Result:
    """Run the campaign."""
    result = program.Result()
    ros = Ros()
    try:
        with tempfile.TemporaryDirectory() as folder:
            soak(ros, Path(folder, "soak"), args, result)
            if args.overload_minutes:
                overload(ros, Path(folder, "overload"), args, result)
    finally:
        ros.close()
    return result


def soak(ros: Ros, folder: Path, args: argparse.Namespace, result: program.Result) -> None:
    """The first part: everything happens."""
    models = BUILTIN if args.models == "builtin" else NULL
    with ComposedProcess(ros, folder, args.rate, models, guest=not args.no_guest) as process:
        guest = None
        if not args.no_guest:
            guest = GuestFrames(ros)
            process.wait_for_variant()
            process.sampler.restart()  # the first build takes as long as the machine lets it
        events = Events(ros, process, args.rng, guest)
        limit_s = time.monotonic() + 60.0 * args.minutes
        process.wait_for_frames(args.steady_frames)
        steady = len(process.sampler.series["frames"])
        while process.frames < args.frames and time.monotonic() < limit_s:
            time.sleep(args.rng.expovariate(1.0 / PAUSE_S))
            events.happen()
        events.forget_subscribers()
        if guest is not None:
            guest.stop()
        last = process.settle()
        process.end(result, "soak: ")
    result.series = process.sampler.series
    result.counts |= {
        "events": dict(sorted(events.counts.items())),
        "received_by_subscribers": events.received,
        "hostile_images": 0 if guest is None else guest.hostile,
    }
    found = read_traces(folder / "trace", TASKS)
    judge_frames(result, found, last, process.cycles_of_tasks, args.frames)
    judge_memory(result, steady, events.rests)


def judge_frames(
    result: program.Result,
    found: dict[str, TracedFrames],
    last: dict[str, dict[str, int]],
    cycles: int,
    wanted: int,
) -> None:
    """Judge whether every frame is in the traces once, and as diagnostics have it."""
    frames = len(found[TASKS[1]])  # the one that was never restarted alone
    result.judge(f"{wanted:,} frames of the camera", f"{frames:,}", frames >= wanted or None)
    breaks = {task: one.breaks for task, one in found.items()}
    for task, several in breaks.items():
        allowed = cycles if task == TASKS[0] else 0
        if len(several) > allowed:
            result.faults += [
                f"{task}: frame {b} behind frame {a} in the trace" for a, b in several
            ]
    result.judge(
        "in the traces every frame of the camera is once in each task; one gap for each time that "
        "a task alone was restarted",
        f"{sum(map(len, found.values())):,} jobs, gaps {[len(b) for b in breaks.values()]}, "
        f"restarts {cycles}",
        not breaks[TASKS[1]] and len(breaks[TASKS[0]]) <= cycles,
    )
    differ = []
    for task, outcomes in last.items():
        traced = found[task].count(sum(outcomes.values()))
        if any(traced[name] != count for name, count in outcomes.items()):
            differ.append(f"{task}: diagnostics {outcomes}, trace {dict(traced)}")
    result.faults += differ
    released = {task: sum(outcomes.values()) for task, outcomes in last.items()}
    result.judge(
        "outcomes in diagnostics since the last activation are those in the trace",
        f"{released}, {len(differ)} tasks differ",
        not differ,
    )
    result.counts["outcomes"] = {task: dict(one.count()) for task, one in found.items()}


def judge_memory(result: program.Result, steady: int, rests: list[tuple[float, float]]) -> None:
    """Judge whether memory, threads and descriptors stay flat after the warm-up.

    In the first `steady` samples nothing happened; at `rests` (frames, MB) all was as before.
    """
    series = result.series
    frames, memory_mb = series["frames"], series["anonymous_mb"]
    places = f"MB per 100,000 frames (Theil-Sen, without the first {WARM_UP:.0%})"
    begin = int(WARM_UP * steady)
    judge_slope(
        result, f"memory (anonymous) grows by at most {MOST_MB:g} {places} while nothing happens",
        frames[begin:steady], memory_mb[begin:steady], LEAST_SAMPLES,
    )  # fmt: skip
    first = WARM_UP * frames[-1] if frames else 0.0
    later = [(count, value) for count, value in rests if count >= first]
    judge_slope(
        result,
        f"and from rest to rest, configured anew as at the beginning, by at most {MOST_MB:g}",
        [count for count, _ in later], [value for _, value in later], LEAST_RESTS,
    )  # fmt: skip
    result.counts["memory_at_rests_mb"] = [(round(count), value) for count, value in rests]
    begin = int(WARM_UP * len(frames))
    judge_slope(
        result, f"and over all samples, whatever happened, by at most {MOST_MB:g}",
        frames[begin:], memory_mb[begin:], LEAST_SAMPLES,
    )  # fmt: skip
    counted = frames[-1] - frames[begin] if frames else 0.0
    enough = counted >= LEAST_FRAMES
    for name in ("threads", "descriptors"):
        # Not the lowest: while everything is cleaned up there are fewer.
        values = series[name][begin:]
        before, after = compare_ends(values, len(values) // 3) if enough else (0.0, 0.0)
        result.judge(
            f"no more {name} in the last third than in the first (medians)",
            f"{before:.0f} -> {after:.0f}" if enough else f"only {counted:,.0f} frames",
            after <= before if enough else None,
        )


def judge_slope(
    result: program.Result, bar: str, frames: Sequence[float], memory_mb: Sequence[float],
    least: int,
) -> None:  # fmt: skip
    """Judge the slope of the memory over frames, unless there are too few of them or of points."""
    counted = frames[-1] - frames[0] if len(frames) >= least else 0.0
    enough = counted >= LEAST_FRAMES
    slope = 1e5 * find_slope(frames, memory_mb) if enough else float("nan")
    result.judge(
        bar,
        f"{slope:.2f} MB, {len(frames)} points over {counted:,.0f} frames"
        if enough
        else f"only {len(frames)} points",
        slope <= MOST_MB if enough else None,
    )


def overload(ros: Ros, folder: Path, args: argparse.Namespace, result: program.Result) -> None:
    """The second part: frames come five times as fast as they can be processed."""
    # Each of the two tasks has a worker for itself.
    rate_hz = OVERLOAD * 1e3 / OVERLOAD_STAGE_MS
    text = f"null:{OVERLOAD_STAGE_MS:g}"
    models = {TASKS[0]: text, TASKS[1]: f"{text},segmentation"}
    ages_ms: list[float] = []

    def take(message: Any) -> None:
        stamp = message.header.stamp
        now_ns = ros.probe.get_clock().now().nanoseconds
        ages_ms.append((now_ns - stamp.sec * 10**9 - stamp.nanosec) / 1e6)

    with ComposedProcess(
        ros, folder, rate_hz, models, deadline_ms=OVERLOAD_DEADLINE_MS, guest=False
    ) as process:
        forget = subscribe(ros, Detection2DArray, "/detections", take)
        process.wait_for_frames(1)
        time.sleep(60.0 * args.overload_minutes)
        forget()
        last = process.settle()
        process.end(result, "overload: ")
    found = read_traces(folder / "trace", TASKS)
    frames = sum(map(len, found.values()))
    breaks = sum(len(one.breaks) for one in found.values())
    same = all(one.count() == Counter(last[task]) for task, one in found.items())
    result.judge(
        f"{OVERLOAD:g}x overload: every frame is in the trace once, as diagnostics count them",
        f"{frames:,} jobs, {breaks} gaps, {'the same' if same else 'other'} counts",
        same and not breaks and frames > 0,
    )
    judge_ages(result, found)
    result.counts["overload"] = {
        "outcomes": {task: dict(one.count()) for task, one in found.items()},
        "age_of_results_ms": describe(np.array(ages_ms)),
    }


def judge_ages(result: program.Result, found: dict[str, TracedFrames]) -> None:
    """Judge how old a frame is when it ends.

    A stage that has begun is not stopped, and none begins that would end after the deadline by
    what is known of it: so a frame ends at the latest one stage after its deadline.
    """
    over_ms, ages_ms = [], []
    for one in found.values():
        over_ms.append((one.completion_ns - one.deadline_ns - one.longest_ns) / 1e6)
        ages_ms.append((one.completion_ns - one.capture_ns) / 1e6)
    over, ages = np.concatenate(over_ms), np.concatenate(ages_ms)
    within = float(np.mean(over <= MARGIN_MS)) if len(over) else 0.0
    third = len(ages_ms[0]) // 3
    parts = (ages_ms[0][:third], ages_ms[0][-third:]) if third else ()
    early, late = (float(np.quantile(part, 0.99)) for part in parts) if third else (0.0, 0.0)
    result.judge(
        f"{OVERLOAD:g}x overload: {WITHIN:.1%} of the frames end within their deadline "
        f"({OVERLOAD_DEADLINE_MS:g} ms), their longest stage and {MARGIN_MS:g} ms",
        f"{within:.3%} of {len(over):,}; age at the end: {describe(ages)} ms, p99 of the first "
        f"and last third {early:.0f} and {late:.0f} ms",
        # Of a few seconds this says how busy the machine was.
        within >= WITHIN if len(over) >= LEAST_FRAMES else None,
    )


def describe(values: Any) -> dict[str, float]:
    """Quantiles of some numbers."""
    if not len(values):
        return {"count": 0}
    found = {f"p{100 * q:g}": float(np.quantile(values, q)) for q in (0.5, 0.99, 0.999)}
    return {
        "count": len(values),
        **{name: round(value, 1) for name, value in found.items()},
        "max": round(float(np.max(values)), 1),
    }


if __name__ == "__main__":
    sys.exit(program.main(run, add_arguments, minutes=30.0))
