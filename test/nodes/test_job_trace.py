# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The traces of nodes: in the schema of all traces, with tasks, parameters and clocks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: traces need it")

from diagnostic_msgs.msg import DiagnosticArray
from ros_graph import TIMEOUT_S
from task_bench import Bench, make_image, wait_for_value
from traced_jobs import make_record

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.job_trace import JobTrace
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import SHARING, TracedTask, TraceMetadata


def find_traces(folder):
    return sorted(path for path in folder.iterdir() if path.is_dir())


def test_every_job_is_in_the_trace_of_its_node(ros, tmp_path):
    bench = Bench(ros, trace_dir=str(tmp_path / "traces"), deadline_ms=500.0)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    image = make_image(ros)
    bench.send(image, 1)
    bench.send(make_image(ros, step=1), 2)  # no image
    (folder,) = find_traces(tmp_path / "traces")
    assert folder.name.startswith("detector-20")
    wait_for_value(inbox, "/detector: task_status", "trace", str(folder))
    bench.node.trigger_deactivate()
    bench.node.trigger_cleanup()

    trace = open_trace(folder)
    assert [part.name for part in trace.parts] == ["jobs-0000.parquet"]
    met, failed = trace.jobs()
    assert (met.record.task, met.record.outcome.value) == ("detector", "met")
    assert met.stamp_ns == image.header.stamp.sec * 10**9 + image.header.stamp.nanosec
    assert met.warm_up
    assert (met.camera, failed.record.outcome.value) == ("/image_raw", "failed")
    metadata = trace.metadata
    task = metadata.tasks["detector"]
    assert (task.model, task.variants, task.deadline_ns) == ("null:1", ("full@null",), 500_000_000)
    assert len(task.model_hash) == 64
    assert metadata.source == "nodes"
    assert metadata.parameters[SHARING]["workers"] == 1
    assert metadata.parameters["detector"]["deadline_ms"] == 500.0
    assert metadata.realtime["mallopt"]["applied"]
    assert metadata.realtime["gc_freeze"]["applied"]
    # The clocks of this machine, whatever they are: the same words in the jobs.
    assert set(met.clocks) <= {metadata.platform["configuration"]}


def test_a_node_that_ends_leaves_a_stream_that_can_be_read(ros, tmp_path):
    bench = Bench(ros, trace_dir=str(tmp_path))
    bench.start()
    bench.send(make_image(ros), 1)
    bench.node.trigger_shutdown()
    (folder,) = find_traces(tmp_path)
    trace = open_trace(folder)
    assert [part.name for part in trace.parts] == ["jobs-0000.arrows"]
    (job,) = trace.jobs()
    assert job.record.outcome.value == "met"


def test_a_folder_that_cannot_be_written_is_an_error(ros, tmp_path):
    (tmp_path / "file").write_text("")
    bench = Bench(ros, trace_dir=str(tmp_path / "file"))
    assert not bench.node.autostart()
    assert "trace_dir" in bench.node.fault
    assert "Not a directory" in bench.node.fault


def test_all_tasks_of_a_process_are_in_one_trace(ros, tmp_path):
    from jetson_dnn_rt.nodes.perception import PerceptionNode

    task: dict[str, Any] = {"warmup_runs": 2, "deadline_ms": 500.0}
    node = ros.make(
        PerceptionNode,
        overrides={
            "perception": {"trace_dir": str(tmp_path)},
            "camera": {"source": "synthetic:64x64", "rate": 50.0},
            "detector": {"model": "null:1", **task},
            "segmenter": {"model": "null:1,segmentation", **task},
        },
    )
    assert node.autostart(), node.fault
    ros.wait(lambda: all(t.timing.snapshot().whole.count >= 3 for t in node.tasks.values()))
    node.cameras["camera"].camera.stop()
    assert node.bridge.session.executor.wait_idle(TIMEOUT_S)
    released = {name: node.bridge.session.executor.snapshot(name).released for name in node.tasks}
    node.trigger_deactivate()
    node.trigger_cleanup()
    (folder,) = find_traces(tmp_path)
    trace = open_trace(folder)
    jobs = list(trace.jobs())
    # Every frame that was released is there, whatever became of it.
    assert Counter(job.record.task for job in jobs) == released
    assert set(released) == {"detector", "segmenter"}
    assert {job.camera for job in jobs} == {"camera"}
    assert set(trace.metadata.parameters) >= {"perception", "camera", "detector", "segmenter"}


def test_jobs_before_the_trace_begins_are_counted_as_lost(tmp_path):
    trace = JobTrace(tmp_path, "perception", lambda ns: "")
    assert trace.describe() == ("", {"trace": "not begun"})
    trace.observe(None, None)  # type: ignore[arg-type]
    trace.begin(TraceMetadata(tasks={"t": TracedTask()}))
    lack, values = trace.describe()
    assert lack == "trace: 1 jobs are not in it"
    assert (values["trace_jobs"], values["trace_lost"]) == (0, 1)
    trace.close()


def test_jobs_that_end_between_two_traces_are_in_the_new_one(tmp_path, monkeypatch):
    """25 jobs were lost in the campaign `cycles`: a task was added while two others ran."""
    trace = JobTrace(tmp_path, "perception", lambda ns: "")
    work = Work(Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", 7, 0))
    trace.begin(TraceMetadata(tasks={"a": TracedTask()}))
    trace.observe(make_record(0), work)
    close = trace._close

    def close_slowly(writer, *, convert):
        for sequence in (1, 2):
            trace.observe(make_record(sequence), work)
        close(writer, convert=convert)

    monkeypatch.setattr(trace, "_close", close_slowly)
    trace.begin(TraceMetadata(tasks={"a": TracedTask(), "b": TracedTask()}))
    monkeypatch.undo()
    trace.observe(make_record(3), work)
    assert trace.describe()[0] == ""
    trace.close()
    found = [
        [(job.record.sequence, job.stamp_ns) for job in open_trace(folder).jobs()]
        for folder in find_traces(tmp_path)
    ]
    assert sorted(found) == [[(0, 7)], [(1, 7), (2, 7), (3, 7)]]


def test_jobs_that_wait_for_a_trace_that_cannot_begin_are_lost(tmp_path, monkeypatch):
    trace = JobTrace(tmp_path, "perception", lambda ns: "")
    work = Work(Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", 7, 0))
    trace.begin(TraceMetadata(tasks={"a": TracedTask()}))

    def choose():
        trace.observe(make_record(0), work)
        return tmp_path / "file" / "trace"

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(trace, "_choose", choose)
    with pytest.raises(ConfigurationError, match="Not a directory"):
        trace.begin(TraceMetadata(tasks={"b": TracedTask()}))
    monkeypatch.undo()
    trace.observe(make_record(1), work)
    trace.begin(TraceMetadata(tasks={"b": TracedTask()}))
    assert trace.describe()[1]["trace_lost"] == 2
    trace.close()


def test_a_limit_and_a_hung_disk_are_in_the_diagnostics(tmp_path, monkeypatch):
    """EDGES 20: what made room at the limit is shown, a disk that does not answer is a warning."""
    trace = JobTrace(tmp_path, "perception", lambda ns: "", TraceRoom(1))
    trace.begin(TraceMetadata())
    writer = trace._writer
    assert writer is not None
    for sequence in range(25_000):
        writer.write(make_record(sequence), wait=True)
    while writer.written + writer.lost < 25_000:
        writer._wake.set()
        writer._thread.join(0.005)
    lack, values = trace.describe()
    assert lack == ""
    assert values["trace_removed"] > 0
    assert values["trace_jobs"] + values["trace_removed"] == 25_000
    assert (values["trace_lost"], values["trace_limit_mb"]) == (0, 1)
    writer._alive_s -= 100.0
    assert trace.describe()[0].startswith("trace: the disk has not answered for 1")
    trace.close()


def test_each_configuration_has_a_trace_of_its_own_and_all_have_one_limit(ros, tmp_path):
    """EDGES 20: a node that is configured again and again has one limit for all its traces."""
    bench = Bench(ros, trace_dir=str(tmp_path), trace_limit_mb=7)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    wait_for_value(inbox, "/detector: task_status", "trace_limit_mb", "7")
    room = bench.node.session.trace._room
    # Deactivated alone, the same tasks go on in the same trace.
    bench.node.trigger_deactivate()
    bench.node.trigger_activate()
    assert len(find_traces(tmp_path)) == 1
    bench.node.trigger_deactivate()
    bench.node.trigger_cleanup()
    assert [part.path.name for part in room._parts] == ["jobs-0000.parquet"]
    assert bench.node.autostart()
    assert bench.node.session.trace._room is room
    assert len(find_traces(tmp_path)) == 2
    result = ros.set(bench.node, trace_limit_mb=-1)
    assert not result.successful


def test_two_traces_of_one_second_have_two_folders(tmp_path):
    trace = JobTrace(tmp_path, "perception", lambda ns: "")
    for task in ("a", "b", "c"):
        trace.begin(TraceMetadata(tasks={task: TracedTask()}))
    trace.close()
    found = [set(open_trace(folder).metadata.tasks) for folder in find_traces(tmp_path)]
    assert sorted(map(sorted, found)) == [["a"], ["b"], ["c"]]
