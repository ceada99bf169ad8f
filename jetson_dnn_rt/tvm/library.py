"""TVM's work in the library: what tuning found out, and the code that was compiled from it.

One tuning database serves all parts of a variant, however the network is cut: kernels are found by
their form, and most of a stage's kernels are those of the whole network. It says how code is made
and is trusted as code is; from one board to another of the same kind it goes by
`jetson_dnn_rt.variants.library.transfer`. The compiled library of a part is made here, and run
only out of a checked entry.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import require_backend
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError, NotBuiltError
from jetson_dnn_rt.models.graph.batched_part import BatchedPart
from jetson_dnn_rt.models.graph.mixed_precision import read_colours
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.safety.trust import private_folder
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.measuring.machine import describe_device
from jetson_dnn_rt.variants.spec import VariantSpec

if TYPE_CHECKING:
    import tvm
    from tvm import relax

    from jetson_dnn_rt.tvm.database import TuningDatabase
    from jetson_dnn_rt.tvm.target import TvmTarget
    from jetson_dnn_rt.tvm.task_tuning import TvmTuner
    from jetson_dnn_rt.tvm.tuning import TuningState

logger = logging.getLogger(__name__)

_CODE = "kernels.so"
_PARTS = "parts"

# A process that compiles two networks at once is slower than one after the other.
_compiling = threading.Lock()
_said: set[str] = set()


class TvmVariant:
    """A model's TVM variant: where its work is kept, and how a part of it is made ready.

    Parameters
    ----------
    model : Model
        The network.
    spec : VariantSpec
        Decomposition and precision.
    threads : int
        Of one inference.
    library : Library
        Where its work is kept.
    amp_lists : str
        File of what FP16 is for, see `read_colours`.
    target : TvmTarget, optional
        What it is for; this machine by default.

    Raises
    ------
    BackendUnavailableError
        When TVM is not here, with the install line, or does not compute in that precision.
    ConfigurationError
        When `amp_lists` cannot be read.
    """

    def __init__(
        self,
        model: Model,
        spec: VariantSpec,
        *,
        threads: int,
        library: Library,
        amp_lists: str = "",
        target: TvmTarget | None = None,
    ) -> None:
        self._version = require_backend(spec.backend, spec.precision).version
        from jetson_dnn_rt.tvm.target import find_local_target

        self.spec = spec
        self.target = target or find_local_target(threads)
        self._model, self._library = model, library
        self._colours = read_colours(amp_lists if spec.precision == "fp16" else "")

    # -- runners -------------------------------------------------------------------------------

    def make(self, part: Part, tuner: TvmTuner | None) -> Runner:
        """Make a part ready: as it was compiled, or by tuning what is not tuned and compiling.

        Parameters
        ----------
        part : Part
            The network, or a run of its stages.
        tuner : TvmTuner or None
            How kernels are tuned; without it nothing is built.

        Raises
        ------
        NotBuiltError
            Without a tuner, when it is not compiled, or not tuned to the end where code cannot be
            kept; says of a database for another target.
        UntunedError
            When kernels are left without a schedule, with the figures.
        BackendUnavailableError
            For several images at once.
        ModelError
            When TVM cannot read or compile the network.
        """
        if isinstance(part, BatchedPart):
            raise BackendUnavailableError(
                f"{part.name}: tvm runs one image at a time, its kernels are tuned for that"
            )
        from jetson_dnn_rt.tvm.compile import find_linker

        entry = self._library.load(self._code_key(part))
        if entry is not None and _CODE in entry.files:
            try:
                return self._load(part, entry.files[_CODE])
            except ModelError as error:
                logger.warning("library entry %s: %s; it is compiled anew", entry.path, error)
        if tuner is not None:
            tuner.tune(self, [part])
        elif find_linker():
            raise NotBuiltError(self.explain(part))
        return self.compile(part)

    def is_built(self, part: Part, trials: int) -> bool:
        """Whether a part is ready to be run, after so many trials of each kernel were asked for.

        Only the library is looked at: the network is not lowered.
        """
        from jetson_dnn_rt.tvm.compile import find_linker

        facts = self._read_facts().get(self.id_of(part))
        if not isinstance(facts, dict) or facts.get("tuned") != facts.get("kernels"):
            return False
        asked = facts.get("asked")
        if not isinstance(asked, int) or asked < trials:
            return False
        return not find_linker() or self._library.load(self._code_key(part)) is not None

    def compile(self, part: Part, module: tvm.IRModule | None = None) -> Runner:
        """Compile a part whose kernels are tuned, and keep the code where it can be linked.

        Parameters
        ----------
        part : Part
            The network, or a run of its stages.
        module : tvm.IRModule, optional
            It, as `lower` gave it.

        Raises
        ------
        NotBuiltError
            When kernels are left without a schedule.
        ModelError
            When TVM cannot read or compile the network.
        """
        from jetson_dnn_rt.tvm import compile as tvm_compile
        from jetson_dnn_rt.tvm.runner import TvmRunner
        from jetson_dnn_rt.tvm.tuning import count_tuned

        database = self.load_database()
        if database is None:
            raise NotBuiltError(self.explain(part))
        with _compiling:
            module = module or self.lower(part)
            state = count_tuned(module, self.target, database)
            if not state.complete:
                raise NotBuiltError(f"{describe_rest(part, state)} ({self.spec})")
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
        entry = self._library.load(self._code_key(part))
        trials = entry.facts.get("trials") if entry is not None else None
        return trials if isinstance(trials, int) else -1

    def lower(self, part: Part) -> tvm.IRModule:
        """A part as TVM tunes and compiles it; errors as `tvm_lowering.lower` says."""
        from jetson_dnn_rt.tvm.lowering import lower

        return lower(part, self.spec.precision, self.target, colours=self._colours)

    def _load(self, part: Part, code: bytes) -> Runner:
        from jetson_dnn_rt.tvm.compile import load_library
        from jetson_dnn_rt.tvm.runner import TvmRunner

        # What was checked is what is loaded, whatever becomes of the entry meanwhile.
        with private_folder() as folder:
            path = folder / _CODE
            path.write_bytes(code)
            executable = load_library(path)
        return TvmRunner(part, self.spec.precision, executable, self.target)

    def _link(self, executable: relax.VMExecutable) -> bytes | None:
        from jetson_dnn_rt.tvm.compile import export_library, find_linker

        if not find_linker():
            if "linker" not in _said:
                _said.add("linker")
                logger.warning(
                    "no C++ compiler to link with: TVM's code is not kept, and is compiled at "
                    "every start; sudo apt install g++"
                )
            return None
        with private_folder() as folder:
            path = folder / _CODE
            export_library(executable, path)
            return path.read_bytes()

    # -- the tuning database -------------------------------------------------------------------

    def load_database(self) -> TuningDatabase | None:
        """What is known of the kernels; None where that is nothing, or refused, which is said."""
        from jetson_dnn_rt.tvm.database import DatabaseError, TuningDatabase

        entry = self._library.load(self._tuning_key())
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
        asked: int = 0,
        states: dict[str, TuningState] | None = None,
    ) -> None:
        """Keep what is known of the kernels.

        Parameters
        ----------
        database : TuningDatabase
            All of it.
        asked : int
            Trials of each kernel that were asked for.
        states : dict of str to TuningState, optional
            Of parts, by `id_of`, that are tuned as far as was asked for.
        """
        parts = dict(self._read_facts())
        for name, state in (states or {}).items():
            parts[name] = {"kernels": state.kernels, "tuned": state.tuned, "asked": asked}
        facts = {
            "target": self.target.text,
            "trials": database.trials,
            "seconds": round(database.seconds, 1),
            "kernels": max((part["kernels"] for part in parts.values()), default=0),
            "tuned": max((part["tuned"] for part in parts.values()), default=0),
            _PARTS: parts,
        }
        key = self._tuning_key()
        self._library.store(key, database.to_files(), facts, model=self._model.source)

    def explain(self, part: Part) -> str:
        """Why a part cannot be run yet, and what to do; names databases that are of no use."""
        text = f"{part.name} for {self.spec} is not in the library: run jetson-dnn-rt build"
        others = self.describe_others()
        return f"{text} ({others})" if others else text

    def describe_others(self) -> str:
        """What there is for other targets, where there is nothing for this one; else empty."""
        if self._library.load(self._tuning_key()) is not None:
            return ""
        own = self._tuning_key()
        keys = [listing.header.key for listing in self._library.entries() if listing.header]
        targets = {key.options for key in keys if set(own.differences(key)) == {"options"}}
        if not targets:
            return ""
        return (
            f"there is a tuning database for {', '.join(sorted(targets))}, which is not used: "
            f"here is {self.target.text}"
        )

    def _read_facts(self) -> dict[str, Any]:
        entry = self._library.load(self._tuning_key())
        parts = entry.facts.get(_PARTS) if entry is not None else None
        return parts if isinstance(parts, dict) else {}

    # -- keys ----------------------------------------------------------------------------------

    def id_of(self, part: Part) -> str:
        """Name of a part among those that the database was tuned for."""
        text = f"{part.graph_hash} {self._colours.text}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _tuning_key(self) -> EntryKey:
        # The target says what it is for: a database that another machine tuned for a board is
        # as good as the board's own. Of the weights kernels know nothing.
        return EntryKey(
            self._model.model_hash,
            self._model.part.graph_hash,
            self.spec.decomposition,
            "tuning",
            self.spec.backend,
            self._version,
            "",
            self.spec.precision,
            (self._model.input_shape,),
            self.target.text,
        )

    def _code_key(self, part: Part) -> EntryKey:
        return EntryKey(
            self._model.model_hash,
            part.graph_hash,
            self.spec.decomposition,
            "artefact",
            self.spec.backend,
            self._version,
            describe_device(self.target.device),
            self.spec.precision,
            tuple(part.input_shapes),
            " ".join(filter(None, (self.target.text, self._colours.text))),
        )


def describe_rest(part: Part, state: TuningState) -> str:
    """How far a part's kernels are tuned, and what to do about the rest."""
    return (
        f"{part.name}: {state.tuned} of {state.kernels} kernels are tuned, and untuned ones are "
        "never run: raise tvm_trials or tvm_minutes, or run jetson-dnn-rt build again: it goes on"
    )
