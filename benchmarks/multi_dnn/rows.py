"""One row of `multi-dnn`: all modes loaded side by side, measured in turn."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.numerics import find_error
from benchmarks.harness.tables import say
from benchmarks.harness.timing import Times, rotate
from benchmarks.multi_dnn.networks import NetworkSpec, Prepared, find_reference, prepare
from benchmarks.multi_dnn.ours import (
    BACKENDS,
    Ours,
    Variant,
    choose_variant,
    free_device_memory,
    list_variants,
)
from benchmarks.multi_dnn.processes import Load, Outputs, Processes
from benchmarks.multi_dnn.queue import JobQueue, QueuedNetwork
from benchmarks.multi_dnn.report import MODES, describe_modes
from jetson_dnn_rt.errors import BackendUnavailableError, JetsonDnnRtError

TOLERANCES = {"cpu-fp32": 1e-3, "cuda-fp32": 3e-2, "fp16": 1e-1, "bf16": 2e-1}
"""Greatest difference to fp32 on the CPU, relative to the greatest output. On a GPU torch computes
convolutions in TF32 (10 bits of mantissa) unless told otherwise, and errors of random networks of
150 layers add up."""

LEAST_ROUNDS, MOST_ROUNDS = 2, 40
_TRIAL_S = 0.4
_ALONE_S = 1.5

_FORMS = {"a": "original", "b": "tucker", "c": "tucker", "d": "original"}


class Bench:
    """The processes, and the networks that were prepared once for several rows.

    Weights go into `folder`, which the caller deletes.
    """

    def __init__(self, device: str, args: argparse.Namespace, folder: Path) -> None:
        self.device, self.args, self.folder = device, args, folder
        self.cores = len(os.sched_getaffinity(0))
        self._prepared: dict[NetworkSpec, Prepared] = {}
        self.chosen: dict[NetworkSpec, Variant] = {}
        self.tried: dict[NetworkSpec, dict[str, float | str]] = {}
        self.references: dict[tuple[NetworkSpec, str], Outputs] = {}
        self._stack = ExitStack()
        self.processes: Processes | None = None
        self.context_bytes = 0
        """What a process takes of the GPU's memory before it has loaded anything."""

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start_processes(self, count: int) -> Processes:
        """So many processes; those of the row before, where they are as many."""
        if self.processes is not None and len(self.processes) == count:
            return self.processes
        self.processes = None
        self._stack.close()
        if self.device == "cuda":
            torch.zeros(1, device="cuda")  # a context of our own, which is not to be counted
        before = free_device_memory(self.device)
        threads = self.count_threads(count)
        self.processes = self._stack.enter_context(Processes(count, self.device, threads))
        self.context_bytes = (before - free_device_memory(self.device)) // count
        return self.processes

    def count_threads(self, count: int) -> int:
        """Threads of an inference in one of so many processes, on a CPU."""
        given: int | None = self.args.process_threads
        return given or max(1, self.cores // count)

    def describe(self) -> dict[str, object]:
        """Settings that hold for all rows."""
        return {
            "cores": self.cores,
            "tolerances": TOLERANCES,
            "torch": str(torch.__version__),
            "tf32_in_a_to_d": bool(torch.backends.cudnn.allow_tf32),
        }

    def measure(self, name: str, specs: Sequence[NetworkSpec], end_s: float) -> dict[str, Any]:
        """Measure one row of so many instances, with its last round over at `end_s`.

        That is in `time.monotonic`; `LEAST_ROUNDS` are run in any case.
        """
        for spec in dict.fromkeys(specs):
            self._prepare(spec)
        with ExitStack() as stack:
            row = _Row(self, [self._prepared[spec] for spec in specs], stack)
            row.load()
            rounds = row.run(end_s)
            return {
                "row": name,
                "instances": len(specs),
                "models": [spec.name for spec in specs],
                "networks": {
                    spec.name: self._describe_network(spec) for spec in dict.fromkeys(specs)
                },
                "threads_of_a_process": self.count_threads(len(specs)),
                "context_mib": _to_mib(self.context_bytes),
                "rounds": len(next(iter(rounds.values()), [])),
                "modes": describe_modes(
                    rounds, [spec.name for spec in specs], row.facts, row.notes
                ),
            }

    def _prepare(self, spec: NetworkSpec) -> None:
        if spec in self._prepared:
            return
        say(f"multi-dnn: {spec.name}: building, decomposing, trying variants")
        prepared = prepare(spec, self.args.jobs, self.device)
        variants = list_variants(prepared, self.args.backends or BACKENDS[self.device])
        if not variants:
            raise BackendUnavailableError(f"none of --backends is here: {self.args.backends}")
        self.chosen[spec], self.tried[spec] = choose_variant(
            prepared, variants, self.cores, _ALONE_S
        )
        image = spec.make_image()
        for form in ("original", "tucker") if prepared.ranks else ("original",):
            self.references[spec, form] = list(find_reference(prepared.split(form), image))
        self._prepared[spec] = prepared

    def _describe_network(self, spec: NetworkSpec) -> dict[str, object]:
        prepared = self._prepared[spec]
        facts: dict[str, object] = {
            "input": list(spec.size),
            "gmacs": round(prepared.gmacs, 3),
            "jobs": len(prepared.original),
            "variant": self.chosen[spec].name,
            "alone_ms": self.tried[spec],
        }
        if prepared.ranks:
            error = find_error(self.references[spec, "tucker"], self.references[spec, "original"])
            facts |= {
                "reduction": round(prepared.reduction, 1),
                "reduction_asked": prepared.asked,
                "layers_decomposed": len(prepared.ranks),
                "tucker_error": round(error, 3),
            }
        return facts


class _Row:
    """The modes of one row."""

    def __init__(self, bench: Bench, prepared: Sequence[Prepared], stack: ExitStack) -> None:
        self._bench, self._prepared, self._stack = bench, prepared, stack
        self._measures: dict[str, Callable[[float], list[Times]]] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.notes: dict[str, str] = {}

    def load(self) -> None:
        """Load all modes, and note what memory each takes; one that fails is left out."""
        try:
            self._processes = self._bench.start_processes(len(self._prepared))
        except JetsonDnnRtError as error:
            self.notes.update(dict.fromkeys("ab", str(error)))
        for mode in MODES:
            if mode in self.notes:
                continue
            if mode in "bc" and not any(prepared.ranks for prepared in self._prepared):
                self.notes[mode] = "nothing to decompose: 1x1 and depthwise convolutions stay"
                continue
            before = free_device_memory(self._bench.device)
            try:
                outputs, forms, kinds, facts = self._load(mode)
            except JetsonDnnRtError as error:
                self.notes[mode] = str(error)
            except torch.cuda.OutOfMemoryError as error:
                self.notes[mode] = str(error).splitlines()[0]
            else:
                taken = before - free_device_memory(self._bench.device)
                contexts = len(self._prepared) if mode in "ab" else 1
                if self._bench.device == "cuda":
                    total = taken + contexts * self._bench.context_bytes
                    facts["gpu_memory_mib"] = _to_mib(total)
                self.facts[mode] = facts | self._check(outputs, forms, kinds)

    def _load(self, mode: str) -> tuple[list[Outputs], list[str], list[str], dict[str, Any]]:
        """Load a mode: the outputs of all instances, their forms and precisions, and facts."""
        say(f"multi-dnn: loading mode {mode}")
        bench, count, device = self._bench, len(self._prepared), self._bench.device
        if mode == "e":
            variants = {prepared.spec: bench.chosen[prepared.spec] for prepared in self._prepared}
            ours = Ours(self._prepared, variants, device, bench.cores, _TRIAL_S)
            self._stack.callback(ours.close)
            self._measures[mode] = ours.measure
            chosen = [network.variant for network in ours.networks]
            graphs = [network.cuda_graph for network in ours.networks]
            facts = {
                "workers": ours.split[0],
                "threads": ours.split[1],
                "workers_tried_ms": ours.tried,
                "cuda_graphs": None if None in graphs else all(graphs),
            }
            outputs = [network.outputs for network in ours.networks]
            return outputs, [v.form for v in chosen], [v.precision for v in chosen], facts
        forms = [_FORMS[mode] if prepared.ranks else "original" for prepared in self._prepared]
        kinds = [f"{device}-fp32"] * count
        pairs = list(zip(self._prepared, forms, strict=True))
        if mode in "ab":
            processes = self._processes
            self._stack.callback(processes.drop)
            processes.load(
                [
                    Load(
                        one.spec,
                        mode,
                        one.ranks if form == "tucker" else {},
                        one.save(form, bench.folder),
                    )
                    for one, form in pairs
                ]
            )
            self._measures[mode] = lambda seconds: processes.measure(mode, seconds)
            return processes.outputs(mode), forms, kinds, {}
        networks = [
            QueuedNetwork(one.split(form), one.spec.make_image(), device) for one, form in pairs
        ]
        pool = count if device == "cuda" else min(count, bench.cores)
        jobs = JobQueue(networks, device, pool, max(1, bench.cores // pool))
        self._stack.callback(jobs.close)
        self._measures[mode] = jobs.measure
        return [network.outputs for network in networks], forms, kinds, {"pool": pool}

    def _check(
        self, outputs: list[Outputs], forms: list[str], kinds: list[str]
    ) -> dict[str, object]:
        errors, agree = [], True
        for prepared, given, form, kind in zip(self._prepared, outputs, forms, kinds, strict=True):
            error = find_error(given, self._bench.references[prepared.spec, form])
            kind = f"{self._bench.device}-fp32" if kind == "fp32" else kind
            agree = agree and error <= TOLERANCES[kind]
            errors.append(error)
        return {"error": float(f"{max(errors):.2g}"), "outputs_agree": agree}

    def run(self, end_s: float) -> dict[str, list[list[Times]]]:
        """Rounds of all modes until the time is over: by mode and round, times by instance."""
        modes = list(self._measures)
        rounds: dict[str, list[list[Times]]] = {mode: [] for mode in modes}
        window_s = self._bench.args.window
        longest_s = 0.0
        for count in range(MOST_ROUNDS):
            now_s = time.monotonic()
            if count >= LEAST_ROUNDS and now_s + longest_s > end_s:
                break
            for mode in rotate(modes, count):
                rounds[mode].append(self._measures[mode](window_s))
            longest_s = max(longest_s, time.monotonic() - now_s)
        return rounds


def _to_mib(size: int) -> float:
    return round(size / 2**20, 1)
