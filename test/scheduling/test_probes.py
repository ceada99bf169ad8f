"""Probes measure anew, and take a small share of the machine however many tasks starve."""

from virtual_drive import drive, make_task

from jetson_dnn_rt.scheduling.admission import PROBE_INTERVAL
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.tasks import Admission, Outcome

COST, PERIOD, DEADLINE = 1000, 3300, 1500
FRAMES = 100


def run_overload(count: int) -> tuple[int, int]:
    """So many tasks of which three fit, out of step: frames met, and probes."""
    engine = Engine()
    tasks = [make_task(f"task-{i:02d}", DEADLINE, PERIOD) for i in range(count)]
    for task in tasks:
        engine.add_task(task)
        engine.seed_budgets(task.name, task.variant, [(COST,)])
    arrivals = sorted(
        (frame * PERIOD + PERIOD * i // count, task.name)
        for frame in range(FRAMES)
        for i, task in enumerate(tasks)
    )
    records = drive(engine, arrivals, lambda job: COST)
    probes = sum(record.admission is Admission.PROBE for record in records)
    return sum(record.outcome is Outcome.MET for record in records), probes


def test_met_frames_do_not_fall_when_tasks_are_added() -> None:
    """Each probe of a starving task costs a frame: without a limit 45 of 330 with 48 tasks."""
    assert run_overload(3) == (3 * FRAMES, 0)
    capacity = FRAMES * PERIOD // COST
    for count in (6, 24):
        met, probes = run_overload(count)
        assert (met >= capacity, probes) == (True, 0)
    met, probes = run_overload(48)
    assert 0 < probes <= capacity // PROBE_INTERVAL
    assert met >= capacity - probes


def test_a_starving_task_is_probed_in_the_end() -> None:
    """Where the task's own budget is wrong, and the machine is busy, it learns all the same."""
    engine = Engine()
    busy, wrong = make_task("busy", 40, 20), make_task("wrong", 30, 20)
    for task, cost in ((busy, 10), (wrong, 50)):
        engine.add_task(task)
        engine.seed_budgets(task.name, task.variant, [(cost,)])
    arrivals = [
        (frame * 20, name) for frame in range(PROBE_INTERVAL + 5) for name in ("busy", "wrong")
    ]
    records = drive(engine, arrivals, lambda job: 10 if job.task == "busy" else 5)
    mine = [record for record in records if record.task == "wrong"]
    assert [r.outcome for r in mine[: PROBE_INTERVAL - 1]] == [Outcome.SKIPPED] * (
        PROBE_INTERVAL - 1
    )
    assert mine[PROBE_INTERVAL - 1].admission is Admission.PROBE
    assert {record.outcome for record in mine[PROBE_INTERVAL - 1 :]} == {Outcome.MET}


def test_all_tasks_probe_without_delay_where_nothing_else_runs() -> None:
    """After a hiccup every budget is wrong: each task has its probe, one after the other."""
    engine = Engine()
    tasks = [make_task(name, 20, 100) for name in "abc"]
    for task in tasks:
        engine.add_task(task)
        engine.seed_budgets(task.name, task.variant, [(50,)])
    arrivals = [
        (frame * 100 + 30 * i, task.name)
        for frame in range(PROBE_INTERVAL)
        for i, task in enumerate(tasks)
    ]
    records = drive(engine, arrivals, lambda job: 19)
    probes = [(r.task, r.sequence) for r in records if r.admission is Admission.PROBE]
    assert probes == [(name, PROBE_INTERVAL - 1) for name in "abc"]


def test_one_probe_at_a_time() -> None:
    """Those of two tasks that are due together: the second waits until the first's is over, and
    then until it has paid for what it took.
    """
    engine = Engine()
    tasks = [make_task(name, 20, 100) for name in "abx"]
    for task in tasks:
        engine.add_task(task)
        engine.seed_budgets(task.name, task.variant, [(5 if task.name == "x" else 50,)])
    count = 2 * PROBE_INTERVAL
    arrivals = [(frame * 100, task.name) for frame in range(count) for task in tasks]
    records = drive(engine, arrivals, lambda job: 5 if job.task == "x" else 50)
    probes = [
        (r.task, r.sequence, r.completion_ns) for r in records if r.admission is Admission.PROBE
    ]
    (first, number, end_ns), (second, later, _) = probes[:2]
    assert (first, number, second) == ("a", PROBE_INTERVAL - 1, "b")
    # The first release that is not before the limit.
    assert later == -(-(end_ns + PROBE_INTERVAL * 50) // 100)
