"""The package's composed graph as a process of a benchmark, fed by a topic.

The counterpart of `benchmarks.naive_node`: same specification, same log.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from benchmarks.protocol import (
    ConsumerSpec,
    FrameLog,
    FrameRow,
    announce_ready,
    published_ns,
    stop_on_term,
)
from jetson_dnn_rt.nodes.process.session import run_session
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome

if TYPE_CHECKING:
    from jetson_dnn_rt.tasks import Work


def make_overrides(spec: ConsumerSpec) -> dict[str, dict[str, object]]:
    """Parameters of the nodes that make them do what the specification says."""
    overrides: dict[str, dict[str, object]] = {
        "perception": {
            "tasks": [task.name for task in spec.tasks],
            "cameras": [""],
            "workers": spec.workers,
        }
    }
    for task in spec.tasks:
        values: dict[str, object] = {
            "kind": task.kind,
            "model": task.model,
            "weights": task.weights,
            "threads": spec.threads,
            "deadline_ms": spec.deadline_ms,
            "image_width": spec.width,
            "image_height": spec.height,
        }
        if task.variant:
            values["variants"] = [task.variant]
        if task.input_size is not None:
            values["input_size"] = list(task.input_size)
        overrides[task.name] = values
    return overrides


def note(log: FrameLog, record: JobRecord, work: Work) -> None:
    """Log a job that ended; its result, if it was valid, has been published."""
    to_system_ns = time.time_ns() - time.monotonic_ns()
    start_ns = None if record.start_ns is None else record.start_ns + to_system_ns
    end_ns = published_ns(work) + to_system_ns if record.outcome is Outcome.MET else None
    admitted = record.admission is Admission.BUDGET
    outcome = record.outcome.value + (f": {record.reason}" if record.reason else "")
    stamp_ns = work.frame.stamp_ns
    log.add(FrameRow(record.task, stamp_ns, start_ns, end_ns, admitted, outcome))


def main(arguments: list[str]) -> None:
    """Run the graph until SIGTERM; the first argument is a `ConsumerSpec` in JSON."""
    spec = ConsumerSpec.from_json(arguments[0])
    stop = threading.Event()
    stop_on_term(stop)
    log = FrameLog(on_first=announce_ready)
    run_session(
        None,
        make_overrides(spec),
        frames=None,
        seconds=None,
        observer=lambda record, work: note(log, record, work),
        stop=stop,
    )
    log.write(spec.output)


if __name__ == "__main__":
    main(sys.argv[1:])
