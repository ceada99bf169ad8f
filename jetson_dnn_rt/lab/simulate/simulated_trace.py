"""The job trace of a simulated run: the schema of a real one, on the virtual clock."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from jetson_dnn_rt.config.process import TRACE_LIMIT_MB
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.lab.simulate.session import Source, simulate
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame, Simulation
from jetson_dnn_rt.lab.simulate.tally import Tally
from jetson_dnn_rt.lab.simulate.world import World
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import TracedTask, TraceMetadata
from jetson_dnn_rt.traces.writer import TraceWriter

SOURCE = "simulate"
SEED = 0
_CLOCK_CHANGES = 1 << 22
"""Far more than a run has: a simulation is faster than its trace is written."""


def simulate_traced(
    source: Source,
    policy: str,
    frames: int | None,
    folder: Path,
    limit_mb: int = TRACE_LIMIT_MB,
) -> Tally:
    """Run the first seed of a scenario, and write its trace.

    Parameters
    ----------
    source : Source
        Made of the scenario.
    policy : str
        Who decides.
    frames : int or None
        As `simulate` has it.
    folder : Path
        Of the trace; an earlier one in it is replaced.
    limit_mb : int
        Of the trace; 0 = no limit.

    Raises
    ------
    ConfigurationError
        When the folder cannot be written, pyarrow is missing, or `simulate` says so.
    JetsonDnnRtError
        When the trace is incomplete in the end.
    """
    log = ClockLog(entries=_CLOCK_CHANGES)
    noted = 0
    simulation: Simulation
    writer: TraceWriter

    with ExitStack() as stack:

        def begin(begun: Simulation, coordinator: Coordinator) -> None:
            nonlocal simulation, writer
            simulation = begun
            try:
                writer = TraceWriter(
                    folder,
                    describe(source, policy, begun.world),
                    clocks=log.at,
                    room=TraceRoom(limit_mb, ring=False),
                    replace=True,
                )
            except OSError as error:
                raise ConfigurationError(f"cannot write {folder}: {error.strerror}") from error
            stack.enter_context(writer)

        def keep(frame: SimulatedFrame) -> None:
            nonlocal noted
            for time_ns, position in simulation.clock_log[noted:]:
                log.append(time_ns, source.clock_table.describe(position))
            noted = len(simulation.clock_log)
            writer.write(frame.record, warm_up=False, wait=True)

        tally = simulate(source, policy, seed=SEED, frames=frames, observer=keep, watch=begin)
    if writer.lost or writer.error:
        raise JetsonDnnRtError(f"the trace lacks {writer.lost} jobs: {writer.error}")
    return tally


def describe(source: Source, policy: str, world: World) -> TraceMetadata:
    """Metadata of a simulated run: the board that is modelled, the machine that computed it."""
    scenario = source.scenario
    return TraceMetadata(
        machine=describe_machine(),
        platform={
            "name": "simulated",
            "title": f"{scenario.board.space} (model)",
            "clocks": source.clock_table.describe(source.clock_table.fastest),
            "configuration": source.clock_table.describe(source.clock_table.fastest),
            "power_mode": "",
            "writable": True,
            "reason": "",
            "notes": [],
        },
        tasks={
            task.parameters.name: TracedTask(
                variants=task.parameters.variants,
                stages=task.parameters.stages,
                deadline_ns=task.parameters.deadline_ns,
                period_ns=task.parameters.period_ns,
            )
            for task in world.tasks
        },
        parameters={
            "simulate": {
                "scenario": scenario.name,
                "policy": policy,
                "seed": SEED,
                "workers": world.workers,
                "discipline": world.discipline,
            }
        },
        source=SOURCE,
    )
