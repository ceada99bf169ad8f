"""What is kept of a job's end is what the record says, whenever it is made."""

from virtual_drive import make_task, make_work

from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Ending
from jetson_dnn_rt.tasks import Outcome


def end_one(engine: Engine, *times_ns: int) -> Ending:
    """Run a job's stages, one after the other."""
    task = make_task("a", 100, stages=("one", "two"))
    engine.add_task(task)
    engine.seed_budgets("a", task.variant, [(10, 30)])
    engine.release("a", 0, 0, make_work())
    begin_ns = 0
    for time_ns in times_ns:
        job = engine.next(begin_ns)
        assert job is not None
        engine.boundary(job, begin_ns + time_ns, begin_ns, begin_ns + time_ns)
        begin_ns += time_ns
    [ending] = engine.take_endings()
    assert engine.take_endings() == []
    return ending


def test_lag_is_that_of_the_moment_of_the_end() -> None:
    """80 for the first stage: the second does not fit any more. Medians are 10 and 30 then, so
    that the first stage's share of the deadline is 25.
    """
    engine = Engine()
    ending = end_one(engine, 80)
    before = ending.make_record()
    assert (before.outcome, before.lag_ns) == (Outcome.ABORTED, 25 - 80)
    # What is observed later does not change it.
    for _ in range(5):
        engine.tasks["a"].observe("full@null", 0, 90)
    assert ending.make_record() == before


def test_record_says_the_outcome_and_the_stages() -> None:
    ending = end_one(Engine(), 20, 81)
    record = ending.make_record()
    assert (record.outcome, record.completion_ns, record.reason) == (Outcome.LATE, 101, "")
    assert [stage.execution_time_ns for stage in record.stages] == [20, 81]
    assert ending.work is ending.job.work


def test_a_job_that_never_began_has_no_lag() -> None:
    engine = Engine()
    task = make_task("a", 10)
    engine.add_task(task)
    engine.seed_budgets("a", task.variant, [(30,)])
    engine.release("a", 0, 0, make_work())
    [(record, _)] = engine.take_ended()
    assert (record.outcome, record.reason, record.lag_ns) == (Outcome.SKIPPED, "budget", 0)
    assert record.start_ns is None
