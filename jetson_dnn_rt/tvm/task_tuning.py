"""Tunes the kernels of a TVM variant, within a budget, and keeps what it finds in the library.

It may be ended at any time (Ctrl-C, SIGTERM): what was measured is kept, and the next time goes on
from there.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.tvm.library import TvmVariant, describe_rest
from jetson_dnn_rt.variants.progress import Progress, ignore_progress

if TYPE_CHECKING:
    from jetson_dnn_rt.tvm.database import TuningDatabase
    from jetson_dnn_rt.tvm.target import TvmTarget
    from jetson_dnn_rt.tvm.tuning import TuningState

logger = logging.getLogger(__name__)

# Candidates are chosen by their times: two searches at once would measure each other.
_tuning = threading.Lock()


@dataclass(frozen=True)
class TvmOptions:
    """How the TVM variants of a task are made.

    Attributes
    ----------
    trials : int
        Candidates that are measured of each kernel, >= 1.
    minutes : float
        After which tuning of one variant ends; 0 = no limit.
    rpc : str
        ``HOST:PORT`` of a board that measures; empty: this machine does.
    amp_lists : str
        File of what FP16 is for; empty = the package's lists.
    tunes : bool
        Whether kernels may be tuned at all; else what is tuned is compiled, and no more.
    """

    trials: int = TaskConfig.tvm_trials
    minutes: float = 0.0
    rpc: str = ""
    amp_lists: str = ""
    tunes: bool = True


class TvmTuner:
    """Tunes the variants of one task; each has the whole budget, once.

    Parameters
    ----------
    options : TvmOptions
        The budget, and who measures.
    progress : callable
        Told what is done at the moment.

    Attributes
    ----------
    options : TvmOptions
        As given.
    """

    def __init__(
        self, options: TvmOptions = TvmOptions(), progress: Progress = ignore_progress
    ) -> None:
        self.options = options
        self._progress = progress
        self._spent_s: dict[str, float] = {}
        self._target: TvmTarget | None = None

    def find_target(self, threads: int) -> TvmTarget:
        """What kernels are tuned for: the board that measures, or this machine.

        Raises
        ------
        ConfigurationError, BackendUnavailableError
            When the board does not answer; names the address and the mend.
        """
        from jetson_dnn_rt.tvm.measuring import find_remote_target
        from jetson_dnn_rt.tvm.target import find_local_target

        if self._target is None:
            rpc = self.options.rpc
            self._target = find_remote_target(rpc, threads) if rpc else find_local_target(threads)
        return self._target

    def tune(self, variant: TvmVariant, parts: Sequence[Part], *, compiles: bool = False) -> None:
        """Tune the kernels of parts, those of the first one first; goes on where the library ends.

        Parameters
        ----------
        variant : TvmVariant
            What they are of.
        parts : sequence of Part
            The network, or runs of its stages.
        compiles : bool
            Compile those, too, that were compiled from fewer trials than there are now.

        Raises
        ------
        UntunedError
            When the budget is spent and kernels are left without a schedule, with the figures.
        BackendUnavailableError
            When a package is missing, or the board does not answer.
        ModelError
            When TVM cannot read the network.
        KeyboardInterrupt
            On SIGINT or SIGTERM, after what was measured was stored.
        """
        from jetson_dnn_rt.tvm.database import TuningDatabase
        from jetson_dnn_rt.tvm.runner import UntunedError
        from jetson_dnn_rt.tvm.tuning import BATCH, count_tuned

        with _tuning, _catch_interrupts() as interrupted:
            database = variant.load_database()
            if database is None:
                if others := variant.describe_others():
                    logger.warning("%s: %s", variant.spec, others)
                database = TuningDatabase(variant.target)
            modules = []
            for part in parts:
                self._progress(f"reading {part.name}", 0, 1)
                modules.append(variant.lower(part))
            # One batch for every kernel of every part first, so that none is left without a
            # schedule when time is over; a single part is tuned in that order anyway.
            trials = self.options.trials
            rounds = [min(BATCH, trials), trials] if len(parts) > 1 else [trials]
            for limit in dict.fromkeys(rounds):
                for part, module in zip(parts, modules, strict=True):
                    self._tune(variant, part, module, database, limit, interrupted)
            states = [count_tuned(module, variant.target, database) for module in modules]
            known = {variant.id_of(part): state for part, state in zip(parts, states, strict=True)}
            if self.options.tunes:
                variant.store_database(database, trials, known)
        for part, state in zip(parts, states, strict=True):
            if not state.complete:
                raise UntunedError(self._explain(variant, part, state))
        if compiles:
            for part, module, state in zip(parts, modules, states, strict=True):
                if variant.compiled_trials(part) != state.trials:
                    self._progress(f"compiling {part.name}", 0, 1)
                    variant.compile(part, module).close()

    def _tune(
        self,
        variant: TvmVariant,
        part: Part,
        module: Any,
        database: TuningDatabase,
        trials: int,
        interrupted: threading.Event,
    ) -> None:
        from jetson_dnn_rt.tvm.tuning import TuningBudget, tune

        options, name = self.options, str(variant.spec)
        left_s = 60 * options.minutes - self._spent_s.get(name, 0.0)
        if not options.tunes or (options.minutes and left_s <= 0):
            return
        begin_s = database.seconds
        tune(
            module,
            variant.target,
            database,
            TuningBudget(trials, left_s / 60 if options.minutes else 0.0),
            progress=self._make_progress(part.name),
            rpc=options.rpc,
            stop=interrupted.is_set,
            checkpoint=variant.store_database,
        )
        self._spent_s[name] = self._spent_s.get(name, 0.0) + database.seconds - begin_s
        if interrupted.is_set():
            raise KeyboardInterrupt

    def _make_progress(self, name: str) -> Callable[[str, int, int], None]:
        """Tell of the trials of this time: what is left is reckoned from when a phase began."""
        minutes = self.options.minutes
        phase = f"tuning {name}" + (f" for at most {minutes:g} min" if minutes else "")
        begin: list[int] = []

        def report(_: str, done: int, total: int) -> None:
            begin.append(done)
            self._progress(phase, done - begin[0], total - begin[0])

        return report

    def _explain(self, variant: TvmVariant, part: Part, state: TuningState) -> str:
        if self.options.tunes:
            return f"{variant.spec}: {describe_rest(part, state)}"
        return (
            f"{variant.spec}: {state.tuned} of {state.kernels} kernels of {part.name} are tuned "
            f"for {variant.target.text}; tuning measures, and needs a machine that does nothing "
            "else: run jetson-dnn-rt build"
        )


@contextmanager
def _catch_interrupts() -> Iterator[threading.Event]:
    """Note SIGINT and SIGTERM instead of dying of them; a second one has its usual effect."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: object) -> None:
        event.set()
        signal.signal(number, before[signal.Signals(number)])
        logger.warning("interrupted: ends after this batch, and what was measured is kept")

    try:
        for number in before:
            signal.signal(number, note)
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
