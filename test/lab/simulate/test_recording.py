# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Recorded runs as worlds: what the trace holds comes back, and only that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from traced_jobs import write_part
from worlds import MS, make_task, make_world, run, simulate_frames

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.recording import RecordedLaboratory, Resampling, read_recording
from jetson_dnn_rt.lab.simulate.scenario import load_scenario, record_scenario, scenario_folder
from jetson_dnn_rt.lab.simulate.session import simulate
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord


@pytest.fixture
def records():
    """Sixty frames of two tasks on one worker: most are met, some skipped, aborted or late."""
    generator = np.random.default_rng(0)
    slow = np.where(np.arange(60) // 5 % 6 == 5, 2.3, 1.0)
    noise = [slow[:, None] * generator.uniform(0.95, 1.05, (60, 2)) for _ in "ab"]
    releases = [index * 12.0 for index in range(60)]
    world = make_world(
        make_task("a", releases, deadline_ms=7.0, noise=noise[0]),
        make_task("b", releases, deadline_ms=12.0, noise=noise[1]),
    )
    kept = [frame.record for frame in run(world)[1]]
    assert {Outcome.MET, Outcome.ABORTED} <= {record.outcome for record in kept}
    return kept


def write(tmp_path, records):
    path = tmp_path / "jobs-0000.parquet"
    write_part(path, records)
    return path


def replay(path, *, block_ms, seed=0):
    laboratory = RecordedLaboratory(record_scenario(path, block_ms=block_ms))
    return simulate_frames(laboratory, "static", seed=seed)


def test_one_block_as_long_as_the_recording_is_the_recording(tmp_path, records):
    frames = replay(write(tmp_path, records), block_ms=1e6)
    recorded = {(r.task, r.sequence): r for r in records}
    assert len(frames) == len(recorded)
    for frame in frames:
        record = frame.record
        original = recorded[record.task, record.sequence]
        assert record.release_ns == original.release_ns
        if original.outcome is Outcome.MET and record.outcome is Outcome.MET:
            assert [s.execution_time_ns for s in record.stages] == pytest.approx(
                [s.execution_time_ns for s in original.stages], abs=1
            )
    same = sum(
        recorded[f.record.task, f.record.sequence].outcome is f.record.outcome for f in frames
    )
    # Budgets start from recorded frames in place of the warm-up runs, which this trace lacks.
    assert same >= 0.9 * len(frames)


def test_blocks_are_resampled_by_the_seed(tmp_path, records):
    path = write(tmp_path, records)
    first, again, other = (replay(path, block_ms=120.0, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    releases_ns = [sorted(f.record.release_ns for f in frames) for frames in (first, other)]
    assert releases_ns[0] == releases_ns[1]


def test_inside_a_block_neighbours_stay_neighbours():
    recorded = np.arange(1000, dtype=np.int64) * 10
    rows = Resampling(100, 9990, seed=3, name="x").rows(recorded, recorded)
    steps = np.diff(rows)
    inside = np.arange(999) % 10 != 9
    # A block may begin between two frames: then one of them stands for two, or one is left out.
    assert (np.abs(steps[inside] - 1) <= 1).all()
    assert (steps[inside] == 1).mean() > 0.9
    assert (np.abs(steps[~inside]) > 20).mean() > 0.5
    assert set(rows) <= set(range(1000))
    one = np.zeros(1, np.int64)
    assert Resampling(100, 0, seed=0, name="x").rows(one, one).tolist() == [0]


def test_all_tasks_take_the_same_block():
    resampling = Resampling(100, 9990, seed=3, name="x")
    times = np.arange(1000, dtype=np.int64) * 10
    shifted = times + 3
    difference = resampling.rows(times, times) - resampling.rows(shifted, shifted)
    assert (np.abs(difference) <= 1).all()


def test_no_time_is_taken_less_often():
    """The edges of the recording are drawn as often as its middle."""
    times = np.arange(100, dtype=np.int64)
    rows = np.concatenate(
        [Resampling(25, 99, seed, name="x").rows(times, times) for seed in range(400)]
    )
    counts = np.bincount(rows, minlength=100)
    assert counts[:10].mean() == pytest.approx(counts.mean(), rel=0.15)
    assert counts[-10:].mean() == pytest.approx(counts.mean(), rel=0.15)


def test_overhead_is_from_a_free_worker_to_the_start(tmp_path):
    """b starts 0.5 ms after it came, its second stage 2 ms after the end of a."""

    def job_with(task, *times_ms):
        stages = tuple(
            StageRecord(f"inference-{number}", "full", round(start * MS), round(end * MS))
            for number, (start, end) in enumerate(times_ms, start=1)
        )
        return replace(job(0, 0.0, []), task=task, stages=stages, start_ns=stages[0].start_ns)

    given = [job_with("a", (2, 4), (4, 6)), job_with("b", (0.5, 2), (8, 10))]
    a, b = read_recording(write(tmp_path, given))
    assert (a.overhead_ns / MS).tolist() == [[0.0, 0.0]]
    assert (b.overhead_ns / MS).tolist() == [[0.0, 2.0]]
    # The worker was idle when both came: it looked for work 0.5 ms later.
    assert (a.wake_ns / MS).tolist() == (b.wake_ns / MS).tolist() == [0.5]


def test_a_frame_that_was_skipped_at_its_start_shows_when_the_worker_woke(tmp_path):
    ran = job(0, 0.0, [("inference-1", "full", 2.0)])
    skipped = replace(job(1, 10.0, [], outcome=Outcome.SKIPPED), completion_ns=round(10.7 * MS))
    at_release = replace(skipped, sequence=2, release_ns=20 * MS, completion_ns=20 * MS)
    task = read_recording(write(tmp_path, [ran, skipped, at_release]))[0]
    # Nothing is known of the last: the nearest frame stands for it.
    assert (task.wake_ns / MS).tolist() == [0.0, 0.7, 0.7]


def test_a_frame_is_done_when_its_result_is_known(tmp_path):
    """The first one's result is known 1 ms after its stage, and only then b may start."""
    stages = [("inference-1", "full", 2.0)]
    first = replace(job(0, 0.0, stages), completion_ns=3 * MS)
    later = StageRecord("inference-1", "full", round(3.5 * MS), 5 * MS)
    other = replace(
        first, task="b", stages=(later,), start_ns=later.start_ns, completion_ns=5 * MS
    )
    path = write(tmp_path, [first, other])
    a, b = read_recording(path)
    assert (a.report_ns.tolist(), b.report_ns.tolist()) == ([MS], [0])
    assert (b.overhead_ns / MS).tolist() == [[0.5]]
    frames = replay(path, block_ms=1e6)
    assert [frame.record.completion_ns for frame in frames] == [3 * MS, 5 * MS]
    assert [frame.record.stages[0].end_ns for frame in frames] == [2 * MS, 5 * MS]


def job(sequence, release_ms, stages, *, outcome=Outcome.MET):
    start_ns = now_ns = round(release_ms * MS)
    runs = []
    for name, variant, time_ms in stages:
        end_ns = now_ns + round(time_ms * MS)
        runs.append(StageRecord(name, variant, now_ns, end_ns))
        now_ns = end_ns
    return JobRecord(
        task="a",
        sequence=sequence,
        variant=stages[0][1] if stages else "full",
        outcome=outcome,
        reason="",
        capture_ns=start_ns,
        release_ns=start_ns,
        start_ns=start_ns if stages else None,
        completion_ns=now_ns,
        absolute_deadline_ns=start_ns + 10 * MS,
        waiting_ns=0,
        lag_ns=0,
        admission=Admission.BUDGET if stages else Admission.NONE,
        stages=tuple(runs),
    )


def test_runs_over_several_stages_are_split(tmp_path):
    """What one variant does with one run, another does in two."""
    fused = [("preprocess", "fused", 1.0), ("inference-1..2", "fused", 6.0)]
    full = [
        ("preprocess", "full", 1.0),
        ("inference-1", "full", 4.0),
        ("inference-2", "full", 2.0),
    ]
    path = write(tmp_path, [job(0, 0.0, fused), job(1, 20.0, full), job(2, 40.0, fused)])
    (task,) = read_recording(path)
    assert task.stages == ("preprocess", "inference-1", "inference-2")
    assert task.variants == ("fused", "full")
    assert task.spans == {"fused": (1, 2), "full": (1, 1, 1)}
    assert (task.base_ns / MS).tolist() == [[1.0, 3.0, 3.0], [1.0, 4.0, 2.0]]
    assert task.period_ns == 20 * MS
    frames = replay(path, block_ms=1e6)
    assert [len(frame.record.stages) for frame in frames] == [2, 2, 2]
    assert frames[0].record.stages[1].name == "inference-1..2"
    assert frames[0].record.response_time_ns == 7 * MS


def test_what_did_not_run_is_like_what_did(tmp_path):
    """Of the second frame a third ran, at 1.5; what is around it is at 1. The third never ran."""
    full = [("inference-1", "full", 2.0), ("inference-2", "full", 4.0)]
    aborted = job(1, 20.0, [("inference-1", "full", 3.0)], outcome=Outcome.ABORTED)
    skipped = job(2, 40.0, [], outcome=Outcome.SKIPPED)
    path = write(tmp_path, [job(0, 0.0, full), aborted, skipped, job(3, 60.0, full)])
    (task,) = read_recording(path)
    third = 1.5 / 3.0 + 1.0 * 2.0 / 3.0
    expected = [[1.0, 1.0], [1.5, third], [1.25, 1.0], [1.0, 1.0]]
    assert task.noise == pytest.approx(np.array(expected))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is no job trace"),
        (None, "No such file"),
        ("skipped", "no frame of task 'a' ran to its end"),
    ],
)
def test_an_unusable_trace(tmp_path, data, message):
    path = tmp_path / "jobs-0000.parquet"
    if data == "skipped":
        write(tmp_path, [job(0, 0.0, [], outcome=Outcome.SKIPPED)])
    elif data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=message) as raised:
        read_recording(path)
    assert str(path) in str(raised.value)


def test_a_scenario_file_with_a_recording(tmp_path, records):
    write(tmp_path, [replace(record, variant="full") for record in records])
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "recording:\n  trace: jobs-0000.parquet\n"
        "  idle_w: 2.0\n  busy_w: 10.0\n  loss: {full: 0.25}\n",
        encoding="utf-8",
    )
    laboratory = RecordedLaboratory(load_scenario(path, (scenario_folder(),)))
    tally = simulate(laboratory, "static", frames=40)
    assert tally.accuracy == pytest.approx(0.75)
    busy_s = sum(
        stage.execution_time_ns * 1e-9
        for frame in simulate_frames(laboratory, "static", frames=40)
        for stage in frame.record.stages
    )
    seconds = laboratory.world(0, 40).end_ns * 1e-9
    assert tally.energy_j == pytest.approx(2.0 * seconds + 8.0 * busy_s, rel=1e-6)
    with pytest.raises(ConfigurationError, match="61 frames wanted, the trace has 60"):
        laboratory.world(0, 61)
