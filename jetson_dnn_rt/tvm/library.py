# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""TVM's variants: tuned within a budget, compiled, and kept in the library.

One tuning database serves all parts of a variant, however the network is cut: kernels are matched
by structure, and most of a stage's kernels are those of the whole network. It determines how code
is made and is trusted like code; `variants.library.transfer` takes it to another board of the same
kind. The compiled library of a part is made here, and run only from a checked entry. Tuning may be
stopped at any time (Ctrl-C, SIGTERM): measurements are kept, and the next run continues there.
"""

from __future__ import annotations

import hashlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import require_backend
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError, NotBuiltError
from jetson_dnn_rt.models.graph.batched_part import BatchedPart
from jetson_dnn_rt.models.graph.mixed_precision import read_colours
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.safety.trust import private_folder
from jetson_dnn_rt.tvm import compile as tvm_compile
from jetson_dnn_rt.tvm import measuring, tuning
from jetson_dnn_rt.tvm.database import TuningDatabase
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.records import DatabaseError
from jetson_dnn_rt.tvm.runner import TvmRunner
from jetson_dnn_rt.tvm.target import TvmTarget, find_local_target
from jetson_dnn_rt.tvm.tuning import TuningState
from jetson_dnn_rt.variants.library.library import Entry, EntryKey, Library
from jetson_dnn_rt.variants.measuring.machine import describe_device
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.running.engines import PreparedVariant, TuningOptions
from jetson_dnn_rt.variants.spec import VariantSpec

if TYPE_CHECKING:
    import tvm
    from tvm import relax

logger = logging.getLogger(__name__)

_CODE = "kernels.so"
_PARTS = "parts"

# Compiling two networks at once in one process is slower than one after the other.
_compiling = threading.Lock()
# Candidates are chosen by their times: two searches at once would disturb each other.
_tuning = threading.Lock()
_logged: set[str] = set()


class TvmVariant(PreparedVariant):
    """A model's TVM variant: tunes and compiles its parts, and loads them from the library.

    `tuning` is the whole budget; the target is the board that measures, or this machine.

    Raises
    ------
    BackendUnavailableError
        When TVM is missing, with the install command, or does not compute in that precision, or
        the board does not answer.
    ConfigurationError
        When ``tuning.amp_lists`` cannot be read.
    """

    def __init__(
        self,
        model: Model,
        spec: VariantSpec,
        *,
        threads: int,
        library: Library,
        tuning: TuningOptions | None = None,
        target: TvmTarget | None = None,
    ) -> None:
        self._version = require_backend(spec.backend, spec.precision).version
        self.spec, self.options = spec, tuning or TuningOptions()
        local, rpc = find_local_target(threads), self.options.rpc
        if target is None:
            target = measuring.find_remote_target(rpc, threads) if rpc else local
        self.target = target
        self.runs_here = target == local
        self._model, self._library = model, library
        self._colours = read_colours(self.options.amp_lists if spec.precision == "fp16" else "")
        self._spent_s = 0.0

    # -- runners -------------------------------------------------------------------------------

    def make(self, part: Part, *, build: bool) -> Runner:
        """Prepare a part: load its compiled code, or tune what is not tuned and compile.

        Raises
        ------
        NotBuiltError
            When building is not allowed and the part is not compiled, or not fully tuned where
            code cannot be stored; names databases for other targets.
        BackendUnavailableError
            When kernels are left without a schedule, with the figures; for batches of images.
        ModelError
            When TVM cannot read or compile the network.
        """
        if isinstance(part, BatchedPart):
            raise BackendUnavailableError(
                f"{part.name}: tvm runs one image at a time, its kernels are tuned for that"
            )
        entry = self._load_code(part)
        if entry is not None and _CODE in entry.files:
            try:
                return self._load(part, entry.files[_CODE])
            except ModelError as error:
                logger.warning("library entry %s: %s; it is compiled again", entry.path, error)
        if build:
            self.tune([part])
        elif tvm_compile.find_linker():
            raise NotBuiltError(self._explain_missing(part))
        return self.compile(part)

    def is_built(self, parts: Sequence[Part]) -> bool:
        """Whether all parts can be run, and had as many trials as `tuning` asks for.

        Only the library is looked at: the networks are not lowered.
        """
        trials = self.options.trials if self.options.tunes else 0
        return self.runs_here and all(self._is_part_built(part, trials) for part in parts)

    def _is_part_built(self, part: Part, trials: int) -> bool:
        facts = self._read_facts().get(self.id_of(part))
        if not isinstance(facts, dict) or facts.get("tuned") != facts.get("kernels"):
            return False
        asked = facts.get("asked")
        if not isinstance(asked, int) or asked < trials:
            return False
        return not tvm_compile.find_linker() or self._load_code(part) is not None

    def _load_code(self, part: Part) -> Entry | None:
        return self._library.load(self._code_key(part))

    def compile(self, part: Part, module: tvm.IRModule | None = None) -> Runner:
        """Compile a part whose kernels are tuned, and store the code where it can be linked.

        `module` is the part as returned by `lower`. Raises `NotBuiltError` when kernels are left
        without a schedule, `ModelError` when TVM cannot read or compile the network.
        """
        database = self.load_database()
        if database is None:
            raise NotBuiltError(self._explain_missing(part))
        with _compiling:
            module = module or self.lower(part)
            state = tuning.count_tuned(module, database)
            if not state.complete:
                raise NotBuiltError(f"{_describe_rest(part, state)} ({self.spec})")
            scheduled = tvm_compile.schedule(module, self.target, database)
            executable = tvm_compile.compile_module(scheduled, self.target)
            code = self._link(executable)
            if code is None:
                return TvmRunner(part, self.spec.precision, executable, self.target)
            key = self._code_key(part)
            facts = {"kernels": state.kernels, "trials": state.trials}
            self._library.store(key, {_CODE: code}, facts, model=self._model.source)
        return self._load(part, code)

    def compiled_trials(self, part: Part) -> int:
        """Trials of the database that a part was compiled with; -1 where there is no code."""
        entry = self._load_code(part)
        trials = entry.facts.get("trials") if entry is not None else None
        return trials if isinstance(trials, int) else -1

    def lower(self, part: Part) -> tvm.IRModule:
        """Lower a part for tuning and compilation; raises what `lowering.lower` raises."""
        return lower(part, self.spec.precision, self.target, colours=self._colours)

    def _load(self, part: Part, code: bytes) -> Runner:
        # Loads exactly the bytes that were checked, even if the entry changes meanwhile.
        with private_folder() as folder:
            path = folder / _CODE
            path.write_bytes(code)
            executable = tvm_compile.load_library(path)
        return TvmRunner(part, self.spec.precision, executable, self.target)

    def _link(self, executable: relax.VMExecutable) -> bytes | None:
        if not tvm_compile.find_linker():
            if "linker" not in _logged:
                _logged.add("linker")
                logger.warning(
                    "no C++ compiler to link with: TVM's code is not kept, and is compiled at "
                    "every start; sudo apt install g++"
                )
            return None
        with private_folder() as folder:
            path = folder / _CODE
            tvm_compile.export_library(executable, path)
            return path.read_bytes()

    # -- tuning -------------------------------------------------------------------

    def prepare(self, parts: Sequence[Part], progress: Progress = ignore_progress) -> None:
        """Tune parts; where they run here, recompile those built with fewer trials than now."""
        modules, states = self.tune(parts, progress)
        if not self.runs_here:
            return
        for part, module, state in zip(parts, modules, states, strict=True):
            if self.compiled_trials(part) != state.trials:
                progress(f"compiling {part.name}", 0, 1)
                self.compile(part, module).close()

    def tune(
        self, parts: Sequence[Part], progress: Progress = ignore_progress
    ) -> tuple[list[tvm.IRModule], list[TuningState]]:
        """Tune the kernels of parts, those of the first part first; continues from the library.

        Returns
        -------
        modules, states
            The parts as lowered, and how far they are tuned.

        Raises
        ------
        BackendUnavailableError
            When the budget is spent and kernels are left without a schedule, with the figures; a
            package is missing, or the board does not answer.
        ModelError
            When TVM cannot read the network.
        KeyboardInterrupt
            On SIGINT or SIGTERM, after the measurements were stored.
        """
        options = self.options
        with _tuning, _catch_interrupts() as interrupted:
            database = self.load_database()
            if database is None:
                if others := self._describe_others():
                    logger.warning("%s: %s", self.spec, others)
                database = TuningDatabase(self.target)
            modules = []
            for part in parts:
                progress(f"reading {part.name}", 0, 1)
                modules.append(self.lower(part))
            # One batch for every kernel of every part first, so that none is left without a
            # schedule when time runs out; a single part is tuned in that order anyway.
            first = min(tuning.BATCH, options.trials) if len(parts) > 1 else options.trials
            if options.tunes:
                for trials in dict.fromkeys([first, options.trials]):
                    for part, module in zip(parts, modules, strict=True):
                        self._search(part, module, database, trials, progress, interrupted)
            states = [tuning.count_tuned(module, database) for module in modules]
            if options.tunes:
                self.store_database(database, parts, states)
        for part, state in zip(parts, states, strict=True):
            if not state.complete:
                raise BackendUnavailableError(self._explain_untuned(part, state))
        return modules, states

    def _search(
        self,
        part: Part,
        module: tvm.IRModule,
        database: TuningDatabase,
        trials: int,
        progress: Progress,
        interrupted: threading.Event,
    ) -> None:
        minutes = self.options.minutes
        left_s = 60 * minutes - self._spent_s
        if minutes and left_s <= 0:
            return
        begin_s = database.seconds
        tuning.tune(
            module,
            database,
            trials,
            minutes=left_s / 60 if minutes else 0.0,
            progress=_count_again(progress, part.name, minutes),
            rpc=self.options.rpc,
            stop=interrupted.is_set,
            checkpoint=self.store_database,
        )
        self._spent_s += database.seconds - begin_s
        if interrupted.is_set():
            raise KeyboardInterrupt

    def _explain_untuned(self, part: Part, state: TuningState) -> str:
        if self.options.tunes:
            return f"{self.spec}: {_describe_rest(part, state)}"
        return (
            f"{self.spec}: {state.tuned} of {state.kernels} kernels of {part.name} are tuned for "
            f"{self.target.text}; tuning measures, and needs a machine that does nothing else: "
            "run jetson-dnn-rt build"
        )

    def load_database(self) -> TuningDatabase | None:
        """Load the known schedules; None where there are none, or they are refused (logged)."""
        entry = self._library.load(self._tuning_key)
        if entry is None:
            return None
        try:
            return TuningDatabase.from_files(entry.files, self.target)
        except DatabaseError as error:
            logger.warning("library entry %s: %s; it is not used", entry.path, error)
            return None

    def store_database(
        self,
        database: TuningDatabase,
        parts: Sequence[Part] = (),
        states: Sequence[TuningState] = (),
    ) -> None:
        """Store the database; `parts` were tuned with the whole budget."""
        known = dict(self._read_facts())
        for part, state in zip(parts, states, strict=True):
            done = {"kernels": state.kernels, "tuned": state.tuned}
            known[self.id_of(part)] = {**done, "asked": self.options.trials}
        facts = {
            "target": self.target.text,
            "trials": database.trials,
            "seconds": round(database.seconds, 1),
            "kernels": max((part["kernels"] for part in known.values()), default=0),
            "tuned": max((part["tuned"] for part in known.values()), default=0),
            _PARTS: known,
        }
        files, source = database.to_files(), self._model.source
        self._library.store(self._tuning_key, files, facts, model=source)

    def _explain_missing(self, part: Part) -> str:
        """Reason why a part cannot run yet, with the fix; names databases that do not apply."""
        text = f"{part.name} for {self.spec} is not in the library: run jetson-dnn-rt build"
        others = self._describe_others()
        return f"{text} ({others})" if others else text

    def _describe_others(self) -> str:
        """Databases for other targets, where there is none for this one; else empty."""
        own = self._tuning_key
        if self._library.load(own) is not None:
            return ""
        keys = [listing.header.key for listing in self._library.entries() if listing.header]
        targets = {key.options for key in keys if set(own.differences(key)) == {"options"}}
        if not targets:
            return ""
        return (
            f"there is a tuning database for {', '.join(sorted(targets))}, which is not used: "
            f"here is {self.target.text}"
        )

    def _read_facts(self) -> dict[str, Any]:
        entry = self._library.load(self._tuning_key)
        parts = entry.facts.get(_PARTS) if entry is not None else None
        return parts if isinstance(parts, dict) else {}

    # -- keys ----------------------------------------------------------------------------------

    def id_of(self, part: Part) -> str:
        """Name of a part among those that the database was tuned for."""
        text = f"{part.graph_hash} {self._colours.text}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _key(self, kind: str, graph_hash: str, device: str, shapes: Any, options: str) -> EntryKey:
        model, spec = self._model, self.spec
        return EntryKey(
            model.model_hash, graph_hash, spec.decomposition, kind, spec.backend, self._version,
            device, spec.precision, tuple(shapes), options,
        )  # fmt: skip

    @property
    def _tuning_key(self) -> EntryKey:
        # The target is enough: a database that another machine tuned for a board is as good as the
        # board's own. Kernels do not depend on the weights.
        shapes = [self._model.input_shape]
        return self._key("tuning", self._model.graph_hash, "", shapes, self.target.text)

    def _code_key(self, part: Part) -> EntryKey:
        options = " ".join(filter(None, (self.target.text, self._colours.text)))
        device = describe_device(self.target.device)
        return self._key("artefact", part.graph_hash, device, part.input_shapes, options)


def _describe_rest(part: Part, state: TuningState) -> str:
    """How far a part's kernels are tuned, and the fix for the rest."""
    return (
        f"{part.name}: {state.tuned} of {state.kernels} kernels are tuned, and untuned ones are "
        "never run: raise tvm_trials or tvm_minutes, or run jetson-dnn-rt build again: it goes on"
    )


def _count_again(progress: Progress, name: str, minutes: float) -> Callable[[str, int, int], None]:
    """Report the trials of this run: the remaining time is estimated from the phase's start."""
    phase = f"tuning {name}" + (f" for at most {minutes:g} min" if minutes else "")
    begin: list[int] = []

    def report(_: str, done: int, total: int) -> None:
        begin.append(done)
        progress(phase, done - begin[0], total - begin[0])

    return report


@contextmanager
def _catch_interrupts() -> Iterator[threading.Event]:
    """Record SIGINT and SIGTERM instead of exiting; a second one has its usual effect."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: object) -> None:
        event.set()
        signal.signal(number, before[signal.Signals(number)])
        logger.warning("interrupted: stopping after this batch; measurements are kept")

    try:
        for number in before:
            signal.signal(number, note)
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
