# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Campaign 4: processes are killed while they start; who starts or runs beside them must hear.

A camera and a detector run all the time. In each round some detectors are killed (SIGKILL) up to
three seconds after their start, and as many new ones are started at once::

    python test/campaigns/neighbours.py --rounds 60 --seed 1

Fast DDS may lose the shared memory that such a process receives in, or never tell it of the
camera. That cannot be prevented from here; but the process must say so, ``doctor`` must find the
former, and a new start must heal it.
"""

# ruff: noqa: E402  (ROS reads its environment when it is imported)
from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence

import program

program.prepare_ros()

from node_process import Process
from ros_graph import Ros
from vision_msgs.msg import Detection2DArray

from jetson_dnn_rt.platforms.shared_memory import find_deaf_processes

HEARS = "first result after"
REASON = re.compile(r"no image \d+ s after subscribing: (.*) \(docs/")
LOST = "memory lost"
REASONS = {
    "has lost the shared memory": LOST,
    "was discovered": "camera not discovered",
    "not connected": "not connected",
    "from which nothing comes": "nothing comes",
}
"""What a process says, and its name here; the first that fits."""
STAYS = "stays"
RATE_HZ = 30.0
KILL_S = (0.1, 3.0)
"""A detector is killed so long after its start: most of that is imports, then DDS begins."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this campaign."""
    add = parser.add_argument
    add("--rounds", type=int, default=60, metavar="N", help="of kills and starts")
    add("--processes", type=int, default=3, metavar="N", help="that are killed in each, and start")
    add("--hear-s", type=float, default=40.0, help="limit of the first result (default 40)")
    add("--gap-s", type=float, default=8.0, help="bar of the detector that stays (default 8)")


def run(args: argparse.Namespace) -> program.Result:
    """Run the campaign."""
    result, ros = program.Result(), Ros()
    camera = Process(
        "camera",
        *("-r", "__node:=neighbours_camera", "-p", f"rate:={RATE_HZ}", "-p", "autostart:=true"),
        *("-p", "source:=synthetic", "-p", "width:=640", "-p", "height:=480"),
    )
    stays = start(STAYS)
    try:
        listen_and_play(ros, stays, args, result)
    finally:
        for process in (stays, camera):
            process.close()
        ros.close()
    return result


def start(name: str) -> Process:
    """Start a detector whose results are its own topic."""
    return Process(
        "detector",
        *("-r", f"__node:={name}", "-r", f"detections:={name}/boxes", "-p", "model:=null:1"),
        *("-p", "autostart:=true", "-p", "image_width:=640", "-p", "image_height:=480"),
    )


def listen_and_play(
    ros: Ros, stays: Process, args: argparse.Namespace, result: program.Result
) -> None:
    """Play all rounds, and judge them."""
    times_s: list[float] = []
    # On the thread that spins: rclpy crashed at the end of a run that had made it on this one.
    ros.call(
        lambda: ros.probe.create_subscription(
            Detection2DArray, f"{STAYS}/boxes", lambda _: times_s.append(time.monotonic()), 10
        )
    )
    stays.wait_for(HEARS)
    ros.wait(lambda: times_s, "a result of the detector that stays")
    rounds = heard = deaf = healed = unknown = 0
    reasons: Counter[str] = Counter()
    longest_s = 0.0
    for number in range(args.rounds):
        if args.clock.is_over:
            break
        rounds += 1
        names = [f"n{number}_{place}" for place in range(args.processes)]
        killed = [start(f"{name}_killed") for name in names]
        pause_s = args.rng.uniform(*KILL_S)
        time.sleep(pause_s)
        for process in killed:
            process.close()
        begin_s = time.monotonic()
        started = [start(name) for name in names]
        wait_for_all(started, HEARS, begin_s + args.hear_s)
        silent = [process for process in started if HEARS not in process.said]
        heard += len(started) - len(silent)
        longest_s = max(longest_s, time.monotonic() - begin_s if not silent else 0.0)
        deaf += len(silent)
        known = find_deaf_processes()
        for process in silent:
            said = " ".join(REASON.findall(process.said))
            reason = next((name for words, name in REASONS.items() if words in said), "")
            reasons[reason] += 1
            unknown += (reason == LOST) != (str(process.pid) in known)
            where = (
                f"round {number}, killed after {pause_s:.2f} s: no image: {reason or 'no reason'}"
            )
            result.faults.append(f"{where}; {', '.join(known.get(str(process.pid), []))}")
        for process in started:
            process.end(2)
            process.close()
        if silent:
            again = [start(f"{name}_again") for name in names[: len(silent)]]
            wait_for_all(again, HEARS, time.monotonic() + args.hear_s)
            healed += sum(HEARS in process.said for process in again)
            for process in again:
                process.end(2)
                process.close()
    end_s = time.monotonic()
    gaps = [b - a for a, b in itertools.pairwise([*times_s, end_s])]
    result.counts |= {
        "rounds": rounds, "killed": rounds * args.processes, "started": heard + deaf,
        "heard": heard, "heard after at most s": round(longest_s, 1), "no image": deaf,
        "reasons": dict(reasons), "doctor and the process disagree": unknown,
        "heard when started again": healed, "results of the one that stays": len(times_s),
    }  # fmt: skip
    judge = result.judge
    enough = f"{rounds * args.processes} killed, {heard + deaf} started"
    judge(f"{args.rounds} rounds of {args.processes} processes", enough, rounds == args.rounds)
    text = f"{deaf} of {heard + deaf} got none"
    judge(f"every process gets images within {args.hear_s:g} s", text, not deaf)
    text = f"{deaf - reasons['']} of {deaf} did"
    judge("who gets none says why", text, not reasons[""])
    text = f"{reasons[LOST]} were lost, doctor is wrong about {unknown}"
    judge("doctor finds those whose shared memory is lost, and no others", text, not unknown)
    judge("a new start heals it", f"{healed} of {deaf}", healed == deaf)
    gap_s = max(gaps)
    judge(f"who stays is never silent for {args.gap_s:g} s", f"{gap_s:.1f} s", gap_s < args.gap_s)


def wait_for_all(processes: Sequence[Process], text: str, end_s: float) -> None:
    """Wait until all have said something, or the time is up."""
    while time.monotonic() < end_s and not all(text in one.said for one in processes):
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(program.main(run, add_arguments, minutes=30.0))
