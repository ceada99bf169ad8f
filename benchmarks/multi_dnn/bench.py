# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Many DNNs at once, against a process for each: the comparison of a paper, as one command.

"Multi-DNN Acceleration Techniques for Embedded Systems with Tucker Decomposition and
Hidden-layer-based Parallel Processing" (JKICE 26(6), 2022), with additional modes that change one
thing at a time:

    a  the original networks, each in a process of its own, in plain torch
    b  decomposed by Tucker, each in a process
    c  decomposed, in one process with the paper's FIFO queue of jobs and a stream per thread
    d  the original ones in that queue
    e  the original ones on the back end that was measured fastest, each in a process
    f  the same variants in this package: one process, the executor with EDF
    g  that with reduced networks, where they were measured faster

b against a is the gain by Tucker, d against a that by one process, c by both; e against a that by
a back end, f against e that by scheduling in one process, g against f that by smaller networks.
The reduced networks are the recovered ones of `benchmarks recovery` for the built-in models;
random weights have no accuracy to lose, so for those the decomposition of b stands for its time.
One row for each network, in several instances, and one for a mix of them. In each mode every
instance has one frame in flight all the time; a time goes from the input on the host to the
outputs on the host, waiting included; beside it stands the time of the original network in plain
torch while nothing else runs, as in the paper's table 1. All modes take turns, round by round, in
one run. Outputs
are compared with those of fp32 on the CPU, of the same network and of the full one, and built-in
models by their accuracy on held-out scenes. Modes a to d run plain torch, kernel by kernel;
CUDA MPS, which lets processes share a GPU and which the paper's board lacks, is not used.

Needs torch, torchvision and numpy; downloads nothing: the weights are random. With --input 32, the
size of the paper's CIFAR-10, networks have ten classes, and Inception v3 gets 75 x 75, its least.
On a machine without a GPU it runs fewer and smaller networks, with a note: the bars are about
GPUs, and the only one on a CPU is that f is at most 5 % slower than e, the same in processes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness.intervals import Interval, show_interval
from benchmarks.harness.numerics import find_error
from benchmarks.harness.options import CORES, Options, read_names
from benchmarks.harness.tables import (
    Report,
    Table,
    Verdict,
    judge_all,
    say,
    say_bars,
    tabulate,
    to_text,
    write,
)
from benchmarks.harness.timing import Times, quantile_ms, rotate
from benchmarks.multi_dnn.modes import (
    BACKENDS,
    JobQueue,
    Load,
    Ours,
    Outputs,
    Processes,
    QueuedNetwork,
    Variant,
    choose_variant,
    free_device_memory,
    list_variants,
    time_solo,
    time_variants,
)
from benchmarks.multi_dnn.networks import NetworkSpec, Prepared, find_reference, prepare
from jetson_dnn_rt.backends.torch import choose_device
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.variants.library.library import Library

MIX = "mix"

MODES = {
    "a": "original, processes",
    "b": "Tucker, processes",
    "c": "Tucker, queue",
    "d": "original, queue",
    "e": "back end, processes",
    "f": "back end, ours",
    "g": "reduced, ours",
}

STEPS = {"e": ("a", "back end"), "f": ("e", "one process"), "g": ("f", "smaller networks")}
"""What a mode adds to another, so that each idea has a figure of its own."""

PAPER = {
    "vgg16": {"b": 34.4, "c": 62.9},
    "resnet152": {"b": -12.4, "c": 56.1},
    "inception_v3": {"b": -16.3, "c": 47.9},
    "regnet_y_32gf": {"b": 42.9, "c": 75.6},
    MIX: {"b": 42.0, "c": 74.6},
}
"""Per cent less time per DNN than mode a, on a Jetson AGX Xavier, 8 instances (RegNetY: 7); for
the mix the largest of its four networks (JKICE 26(6), 2022, section 4.4)."""

ALONE = {
    "alexnet": {"top5": 79.07, "solo_ms": 10.8, "multi_ms": 58.3},
    "squeezenet1_0": {"top5": 80.42, "solo_ms": 16.6, "multi_ms": 94.3},
    "vgg16": {"top5": 90.38, "solo_ms": 52.5, "multi_ms": 334.8},
    "regnet_y_32gf": {"top5": 95.34, "solo_ms": 232.8, "multi_ms": 1487.3},
}
"""The paper's table 1: top-5 accuracy on ImageNet in per cent, the time of one network alone and
among six, each in a process."""

BARS = {"vgg16": 80.0, "resnet152": 65.0, "inception_v3": 65.0, "regnet_y_32gf": 80.0, MIX: 80.0}
"""Per cent less time per DNN of mode g against mode a, on a GPU with 8 instances."""

CPU_BAR = -5.0
"""The same of mode f against mode e, on a CPU; there processes switch no contexts of a GPU."""

BAR_INSTANCES = 8

TOLERANCES = {"cpu-fp32": 1e-3, "cuda-fp32": 3e-2, "fp16": 1e-1, "bf16": 2e-1}
"""Greatest difference to fp32 on the CPU, relative to the greatest output. On a GPU torch computes
convolutions in TF32 (10 bits of mantissa) unless told otherwise, and errors of random networks of
150 layers add up."""

GPU_MODELS = ("vgg16", "resnet152", "inception_v3", "regnet_y_32gf")
CPU_MODELS = ("builtin:detector", "builtin:segmenter", "mobilenet_v3_small")
GPU_MIX, GPU_INSTANCES, CPU_INSTANCES = (3, 1, 2, 2), 8, 2
LEAST_ROUNDS, MOST_ROUNDS = 2, 40
_TRIAL_S, _ALONE_S = 0.1, 1.5  # of a split in one round, of a variant alone
_IN_PROCESSES = ("a", "b", "e")
_JUDGED = {"f": "e", "g": "a"}
"""Modes with a bar, and what they are held against."""

Rounds = Mapping[str, Sequence[Sequence[Times]]]
"""By mode, for each round, the times of each instance in ns."""


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add(
        "--models", None,
        f"of torchvision, or builtin:detector, builtin:segmenter (default on a GPU: "
        f"{','.join(GPU_MODELS)}; else: {','.join(CPU_MODELS)})",
        kind=read_names, metavar="NAME,...",
    )  # fmt: skip
    add(
        "--instances", None,
        f"of each model in its row (default {GPU_INSTANCES} on a GPU, else {CPU_INSTANCES})",
        kind=int, least=1, metavar="N",
    )  # fmt: skip
    add(
        "--mix", None,
        "instances of each model in the last row, in their order; 0 = no such row (default "
        "3,1,2,2 for the paper's networks, else 1 of each)", kind=_read_counts, metavar="N,...",
    )  # fmt: skip
    add(
        "--input", None,
        "side of the networks' input (default on a GPU 32, as in the paper, else 224)",
        kind=int, least=1, metavar="PIXELS",
    )  # fmt: skip
    add("--modes", list(MODES), "default all", choices=MODES)
    add("--jobs", 8, "runs of layers into which modes c and d cut a network", least=1)
    add("--minutes", 7.0, "for everything: each row measures until its share is over", above=0)
    add("--window", 0.7, "seconds of one mode in one round", above=0, metavar="S")
    add(
        "--device", "auto", "auto: cuda where torch sees a device", choices=("auto", "cpu", "cuda")
    )
    add(
        "--backends", None,
        "that modes e to g try (default on a GPU torch, since TensorRT builds for minutes; else "
        "openvino,onnxruntime,torch)", kind=read_names, metavar="NAME,...",
    )  # fmt: skip
    add(
        "--library", None,
        "with recovered networks (default: that of tasks, ~/.cache/jetson_dnn_rt)", kind=Path,
        metavar="DIR",
    )  # fmt: skip
    add("--scenes", 200, "held-out ones for the accuracy of built-in models", least=1)
    add(
        "--process-threads", None,
        "of torch in each process on a CPU (default: the cores shared out, at least 1)",
        kind=int, least=1, metavar="N",
    )  # fmt: skip


def _read_counts(text: str) -> list[int]:
    counts = [int(word) for word in text.split(",")]
    if min(counts) < 0:
        raise argparse.ArgumentTypeError(f"counts must be >= 0: {text}")
    return counts


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all rows; each is printed, and written if requested, as soon as it is done.

    `ConfigurationError` when there is no such network, or --mix has a different number of them;
    `BackendUnavailableError` when torchvision is missing.
    """
    end_s = time.monotonic() + 60.0 * args.minutes
    device = choose_device() if args.device == "auto" else args.device
    if device == "cuda" and choose_device() != "cuda":
        raise ConfigurationError("--device cuda: torch sees no CUDA device")
    names = args.models or list(GPU_MODELS if device == "cuda" else CPU_MODELS)
    instances = args.instances or (GPU_INSTANCES if device == "cuda" else CPU_INSTANCES)
    counts = args.mix or (list(GPU_MIX) if tuple(names) == GPU_MODELS else [1] * len(names))
    if sum(counts) and len(counts) != len(names):
        raise ConfigurationError(f"--mix needs {len(names)} numbers, one for each model: {counts}")
    side = args.input or (32 if device == "cuda" else 224)
    specs = [NetworkSpec.of(name, side) for name in names]
    plan = [(name, [spec] * instances) for name, spec in zip(names, specs, strict=True)]
    mix = [spec for spec, count in zip(specs, counts, strict=False) for _ in range(count)]
    if mix and len(names) > 1:
        plan.append((MIX, mix))
    result: dict[str, Any] = {
        "device": device,
        "instances": instances,
        "mix": counts,
        "input": side,
        "jobs": args.jobs,
        "window_s": args.window,
        "mps": "not used",
        "paper_alone": ALONE,
        "rows": [],
        "passed": None,
    }
    if device != "cuda":
        say(
            "multi-dnn: no GPU: smaller networks in smaller numbers; the paper's comparison is "
            "about GPUs"
        )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bench = Bench(device, args, Path(folder), stack)
        result["settings"] = {
            "cores": CORES,
            "tolerances": TOLERANCES,
            "torch": str(torch.__version__),
            "tf32_in_a_to_d": bool(torch.backends.cudnn.allow_tf32),
        }
        for index, (name, row) in enumerate(plan):
            now_s = time.monotonic()
            share_s = (end_s - now_s) / (len(plan) - index)
            say(f"multi-dnn: {name}: {len(row)} networks, {share_s:.0f} s")
            found = bench.measure(name, row, now_s + share_s)
            result["rows"].append(found)
            result["passed"] = judge(result)
            _keep(result, found, getattr(args, "output", None))
    return result


def _keep(result: dict[str, Any], row: dict[str, Any], output: Path | None) -> None:
    """Show and write the rows so far, so that a forced end loses none."""
    say(to_text(report_row(row, result["device"])))
    say(json.dumps({"row": row}))
    if output is not None:
        write({"benchmark": "multi_dnn", **result, "complete": False}, output)


# -- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Network:
    """Network of a row: its fastest variants, those that were tried, and outputs by form.

    `solo_ms` is the time of the original in plain torch while nothing else runs.

    `reduced` is of a reduced form, None where there is none or the full network is faster.
    """

    prepared: Prepared
    variant: Variant
    reduced: Variant | None
    tried: Mapping[str, float | str]
    solo_ms: float
    references: Mapping[str, Outputs]
    accuracy: Mapping[str, float]

    def describe(self) -> dict[str, object]:
        prepared = self.prepared
        facts: dict[str, object] = {
            "input": list(prepared.spec.size),
            "gmacs": round(prepared.gmacs, 3),
            "jobs": len(prepared.forms["original"]),
            "variant": self.variant.name,
            "reduced": None if self.reduced is None else self.reduced.name,
            "alone_ms": self.tried,
            "solo_ms": self.solo_ms,
        }
        if self.accuracy:
            facts["accuracy"] = dict(self.accuracy)
        if prepared.ranks:
            facts |= {
                "reduction": round(prepared.reduction, 1),
                "reduction_asked": prepared.asked,
                "layers_decomposed": len(prepared.ranks),
                "tucker_error": round(
                    find_error(self.references["tucker"], self.references["original"]), 3
                ),
            }
        return facts


@dataclass
class _Mode:
    """Loaded mode: how it is measured; outputs, form and precision of each instance; facts."""

    measure: Callable[[float], list[Times]]
    outputs: list[Outputs]
    forms: list[str]
    precisions: list[str]
    facts: dict[str, Any]


class Bench:
    """Processes, and networks that are prepared once for several rows.

    Weights go into `folder`, which the caller deletes.
    """

    def __init__(
        self, device: str, args: argparse.Namespace, folder: Path, stack: ExitStack
    ) -> None:
        self._device, self._args, self._folder = device, args, folder
        self._known: dict[NetworkSpec, _Network] = {}
        self._stack = stack.enter_context(ExitStack())
        self._processes: Processes | None = None
        self._context_bytes = 0  # GPU memory of a process before it has loaded anything

    def measure(self, name: str, specs: Sequence[NetworkSpec], end_s: float) -> dict[str, Any]:
        """Measure one row, with its last round over at `end_s` of `time.monotonic`.

        `LEAST_ROUNDS` are run in any case.
        """
        networks = [self._prepare(spec) for spec in specs]
        models = [spec.name for spec in specs]
        with ExitStack() as stack:
            modes, facts, notes = self._load_modes(networks, stack)
            rounds = self._play(modes, end_s)
            return {
                "row": name,
                "instances": len(specs),
                "models": models,
                "networks": {one.prepared.spec.name: one.describe() for one in networks},
                "threads_of_a_process": self._count_threads(len(specs)),
                "context_mib": _to_mib(self._context_bytes),
                "rounds": len(next(iter(rounds.values()), [])),
                "modes": describe_modes(rounds, models, facts, notes),
            }

    def _prepare(self, spec: NetworkSpec) -> _Network:
        if spec not in self._known:
            say(f"multi-dnn: {spec.name}: building, decomposing, trying variants")
            library = Library(self._args.library)
            prepared = prepare(spec, self._args.jobs, self._device, library)
            backends = self._args.backends or BACKENDS[self._device]
            variants = list_variants("original", backends)
            if not variants:
                raise BackendUnavailableError(f"none of --backends is here: {self._args.backends}")
            form = prepared.reduced_form
            reduced = list_variants(form, backends) if form else []
            times = time_variants(prepared, [*variants, *reduced], CORES, _ALONE_S)
            variant, smaller = choose_variant(variants, times), choose_variant(reduced, times)
            if variant is None:
                raise BackendUnavailableError(f"{spec.name} runs on none of them: {times}")
            if smaller is not None and smaller.alone_ms >= variant.alone_ms:
                smaller = None
            path = prepared.save("original", self._folder)
            solo_ms = round(time_solo(spec, path, self._device, CORES, _ALONE_S), 4)
            image = spec.make_image()
            references = {f: find_reference(one, image) for f, one in prepared.forms.items()}
            accuracy = prepared.measure_accuracy(self._args.scenes)
            self._known[spec] = _Network(
                prepared, variant, smaller, times, solo_ms, references, accuracy
            )
        return self._known[spec]

    def _count_threads(self, count: int) -> int:
        """Count the threads of an inference in one of several processes, on a CPU."""
        return self._args.process_threads or max(1, CORES // count)

    def _start_processes(self, count: int) -> Processes:
        """Start processes, or reuse those of the row before if their number is the same."""
        if self._processes is None or len(self._processes) != count:
            self._processes = None
            self._stack.close()
            if self._device == "cuda":
                torch.zeros(1, device="cuda")  # our own context, which must not be counted
            before = free_device_memory(self._device)
            processes = Processes(count, self._device, self._count_threads(count))
            self._processes = self._stack.enter_context(processes)
            self._context_bytes = (before - free_device_memory(self._device)) // count
        return self._processes

    def _load_modes(
        self, networks: Sequence[_Network], stack: ExitStack
    ) -> tuple[dict[str, _Mode], dict[str, dict[str, Any]], dict[str, str]]:
        """Load all modes; note the memory that each takes and why one is left out."""
        modes: dict[str, _Mode] = {}
        facts: dict[str, dict[str, Any]] = {}
        notes: dict[str, str] = {}
        for mode in filter(self._args.modes.__contains__, MODES):
            if mode in "bc" and not any(one.prepared.ranks for one in networks):
                notes[mode] = "nothing to decompose: 1x1 and depthwise convolutions stay"
                continue
            if mode == "g" and not any(one.reduced for one in networks):
                notes[mode] = (
                    "no reduced network that keeps the accuracy and is faster; `python -m "
                    "benchmarks recovery` makes those of the built-in models"
                )
                continue
            say(f"multi-dnn: loading mode {mode}")
            try:
                if mode in _IN_PROCESSES:
                    self._start_processes(len(networks))
                before = free_device_memory(self._device)
                loaded = modes[mode] = self._load(mode, networks, stack)
            except (JetsonDnnRtError, torch.cuda.OutOfMemoryError) as error:
                notes[mode] = str(error).splitlines()[0]
                continue
            if self._device == "cuda":
                contexts = len(networks) if mode in _IN_PROCESSES else 1
                taken = before - free_device_memory(self._device)
                loaded.facts["gpu_memory_mib"] = _to_mib(taken + contexts * self._context_bytes)
            facts[mode] = loaded.facts | self._check(loaded, networks)
        return modes, facts, notes

    def _load(self, mode: str, networks: Sequence[_Network], stack: ExitStack) -> _Mode:
        count, device = len(networks), self._device
        if mode in "fg":
            pairs = [
                (one.prepared, (one.reduced if mode == "g" else None) or one.variant)
                for one in networks
            ]
            ours = Ours(pairs, device, CORES, _TRIAL_S)
            stack.callback(ours.close)
            graphs = [network.cuda_graph for network in ours.networks]
            facts = {
                "workers": ours.split[0],
                "threads": ours.split[1],
                "workers_tried_ms": ours.tried,
                "workers_decided": ours.decided,
                "cuda_graphs": None if None in graphs else all(graphs),
            }
            return _Mode(
                ours.measure,
                [network.outputs for network in ours.networks],
                [network.variant.form for network in ours.networks],
                [network.variant.precision for network in ours.networks],
                facts,
            )
        tucker = mode in "bc"
        forms = ["tucker" if tucker and one.prepared.ranks else "original" for one in networks]
        both = list(zip(networks, forms, strict=True))
        if mode in _IN_PROCESSES:
            processes = self._start_processes(count)
            stack.callback(processes.ask, "drop")
            processes.load(
                [
                    Load(
                        one.prepared.spec,
                        mode,
                        one.prepared.ranks if tucker else {},
                        one.prepared.save(form, self._folder),
                        one.variant if mode == "e" else None,
                    )
                    for one, form in both
                ]
            )
            measure = partial(processes.ask, "measure", mode)
            precisions = [one.variant.precision if mode == "e" else "fp32" for one in networks]
            return _Mode(measure, processes.ask("outputs", mode), forms, precisions, {})
        queued = [
            QueuedNetwork(one.prepared.forms[form], one.prepared.spec.make_image(), device)
            for one, form in both
        ]
        pool = count if device == "cuda" else min(count, CORES)
        jobs = JobQueue(queued, device, pool, max(1, CORES // pool))
        stack.callback(jobs.close)
        outputs = [network.outputs for network in queued]
        return _Mode(jobs.measure, outputs, forms, ["fp32"] * count, {"pool": pool})

    def _check(self, mode: _Mode, networks: Sequence[_Network]) -> dict[str, object]:
        errors, to_full, agree = [], [], True
        for one, given, form, precision in zip(
            networks, mode.outputs, mode.forms, mode.precisions, strict=True
        ):
            errors.append(find_error(given, one.references[form]))
            to_full.append(find_error(given, one.references["original"]))
            kind = f"{self._device}-fp32" if precision == "fp32" else precision
            agree = agree and errors[-1] <= TOLERANCES[kind]
        return {
            "error": float(f"{max(errors):.2g}"),
            "error_to_full": float(f"{max(to_full):.2g}"),
            "outputs_agree": agree,
        }

    def _play(self, modes: Mapping[str, _Mode], end_s: float) -> dict[str, list[list[Times]]]:
        """Play rounds of all modes until the time is over; times by mode, round and instance."""
        rounds: dict[str, list[list[Times]]] = {mode: [] for mode in modes}
        longest_s = 0.0
        for count in range(MOST_ROUNDS):
            now_s = time.monotonic()
            if count >= LEAST_ROUNDS and now_s + longest_s > end_s:
                break
            for mode in rotate(list(modes), count):
                rounds[mode].append(modes[mode].measure(self._args.window))
            longest_s = max(longest_s, time.monotonic() - now_s)
        return rounds


def _to_mib(size: int) -> float:
    return round(size / 2**20, 1)


# -- figures -------------------------------------------------------------------------------------


def describe_modes(
    rounds: Rounds,
    models: Sequence[str],
    facts: Mapping[str, Mapping[str, Any]],
    notes: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    """Describe all modes of a row by their figures.

    ``time_per_dnn_ms`` is the mean over the instances of their medians, as the median over the
    rounds; ``less_than_X`` is the reduction against mode X, per cent, in pairs of one round.
    ``by_model`` has quantiles over all single inferences.
    """
    means = {
        mode: np.array([np.mean([np.median(taken) for taken in times]) for times in row]) * 1e-6
        for mode, row in rounds.items()
    }
    modes: dict[str, dict[str, Any]] = {}
    for mode in MODES:
        if mode not in means:
            modes[mode] = {"note": notes.get(mode, "not run")}
            continue
        # In a closed loop each instance does one inference after the other.
        rates = [sum(1e9 / np.mean(taken) for taken in times) for times in rounds[mode]]
        row: dict[str, Any] = {
            "time_per_dnn_ms": round(float(np.median(means[mode])), 4),
            "by_model": {
                model: _quantiles(rounds[mode], [i for i, m in enumerate(models) if m == model])
                for model in dict.fromkeys(models)
            },
            "inferences_per_s": round(float(np.median(np.array(rates))), 2),
            **facts.get(mode, {}),
        }
        for other in "abdef":
            if other in means and other != mode:
                row[f"less_than_{other}"] = _find_saved(means[mode], means[other])
        if (base := _JUDGED.get(mode)) in means:
            saved = 100.0 * (1.0 - means[mode] / means[base])
            row[f"less_than_{base}_by_round"] = [round(float(one), 2) for one in saved]
        modes[mode] = row
    if len(set(models)) > 1 and "a" in rounds:
        # Reduction of the time of each network of a mix.
        for mode in rounds:
            for model, figures in modes[mode]["by_model"].items():
                base = modes["a"]["by_model"][model]["p50_ms"]
                figures["less_than_a"] = _find_saved(figures["p50_ms"], base)
    return modes


def _find_saved(time: Any, base: Any) -> float:
    """Find the reduction of a time against another one in per cent, as the median over pairs."""
    return round(100.0 * (1.0 - float(np.median(time / base))), 1)


def _quantiles(row: Sequence[Sequence[Times]], instances: Sequence[int]) -> dict[str, Any]:
    taken = np.concatenate([times[index] for times in row for index in instances])
    return {
        "p50_ms": round(quantile_ms(taken, 0.5), 4),
        "p99_ms": round(quantile_ms(taken, 0.99), 4),
        "count": len(taken),
    }


def judge(result: Mapping[str, Any]) -> Verdict:
    """Judge whether the measured rows meet the bars; None if no bar applies.

    On a GPU the bars are `BARS`, with 8 instances; on a CPU ours may be at most `CPU_BAR` slower
    than the same variants in processes. Outputs must agree everywhere.
    """
    return judge_all(judge_row(row, result["device"]) for row in result["rows"])


def judge_row(row: Mapping[str, Any], device: str) -> Verdict:
    """Judge one row."""
    modes = row["modes"]
    if any(not mode.get("outputs_agree", True) for mode in modes.values()):
        return False
    if device != "cuda":
        return _judge_saved(modes.get("f", {}), "e", CPU_BAR)
    return _judge_saved(modes.get("g", {}), "a", find_bar(row, device))


def _judge_saved(mode: Mapping[str, Any], base: str, bar: float | None) -> Verdict:
    """Judge per cent less time than another mode; earlier results have no rounds."""
    saved = mode.get(f"less_than_{base}")
    if bar is None or saved is None:
        return None
    by_round = mode.get(f"less_than_{base}_by_round")
    return bool(saved >= bar) if by_round is None else Interval.of(by_round).judge(least=bar)


def find_bar(row: Mapping[str, Any], device: str) -> float | None:
    """Find the bar of mode g against mode a, per cent less time; None if there is none."""
    if device != "cuda" or row["instances"] != BAR_INSTANCES or not is_of_paper(row):
        return None
    return BARS[row["row"]]


def is_of_paper(row: Mapping[str, Any]) -> bool:
    """Whether the paper has such a row."""
    return row["row"] in PAPER and all(model in PAPER for model in row["models"])


def report(result: Mapping[str, Any]) -> Report:
    """Make a table for each row."""
    settings, device = result["settings"], result["device"]
    parts: list[str | Table] = [
        f"torch {settings['torch']} on {device}, {settings['cores']} cores, CUDA MPS not used; "
        "per cent: less time per DNN, paper: on a Jetson AGX Xavier"
    ]
    if device != "cuda":
        parts.append(
            "no GPU: the paper's comparison is about GPUs; the bar here is that f takes at most "
            f"{-CPU_BAR:g} % more time than e"
        )
    for row in result["rows"]:
        parts += report_row(row, device)
    parts += report_alone(result["rows"])
    on_cpu = f"f at most {-CPU_BAR:g} % slower than e"
    bars = on_cpu if device != "cuda" else "g against a as in the tables"
    return [*parts, say_bars(f"{bars}, outputs agree", result["passed"])]


def report_alone(rows: Sequence[Mapping[str, Any]]) -> Report:
    """Report how much longer a network takes among others like it than alone: table 1."""
    found = []
    for row in rows:
        network = row["networks"].get(row["row"], {})  # of a mix there is none
        if "solo_ms" not in network:
            continue
        solo_ms, paper = network["solo_ms"], ALONE.get(row["row"], {})
        entry = {"network": row["row"], "instances": row["instances"], "solo_ms": solo_ms}
        for mode, figures in row["modes"].items():
            if "time_per_dnn_ms" in figures:
                entry[f"{mode}_ms"] = figures["time_per_dnn_ms"]
                entry[f"{mode}_times"] = figures["time_per_dnn_ms"] / solo_ms
        if paper:
            entry["paper"] = {**paper, "times": paper["multi_ms"] / paper["solo_ms"]}
        found.append(entry)
    if not found:
        return []
    modes = [mode for mode in "aefg" if any(f"{mode}_ms" in entry for entry in found)]
    return [
        "alone, in plain torch on all cores, and among the instances of its row; x alone = how "
        "many times as long. The paper: table 1, six processes on a Jetson AGX Xavier",
        tabulate(
            found,
            "network, instances, alone ms=solo_ms:.2f",
            *(f"{mode} ms={mode}_ms:.2f, x alone={mode}_times:.2f" for mode in modes),
            "paper alone ms=paper.solo_ms:.1f, six=paper.multi_ms:.1f, x alone=paper.times:.2f",
            "top-5 %=paper.top5:.2f",
        ),
    ]


def describe_steps(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Describe what each idea saves by itself, of the time per DNN without it."""
    return [
        f"{mode} against {base}, {what}: {modes[mode][f'less_than_{base}']:.1f} % less"
        for mode, (base, what) in STEPS.items()
        if f"less_than_{base}" in modes.get(mode, {})
    ]


def report_row(row: Mapping[str, Any], device: str) -> Report:
    """Report one row as a table, with a line for each mode."""
    lines = [f"{row['row']}: {row['instances']} instances, {row['rounds']} rounds"]
    for name, network in row["networks"].items():
        size = "x".join(map(str, network["input"]))
        reduced = f", Tucker -{network['reduction']} % of them" if "reduction" in network else ""
        macs = f"{network['gmacs']} GMACs{reduced}"
        lines.append(f"  {name} ({size}): {macs}; ours {network['variant']}")
        if network["reduced"]:
            lines[-1] += f", reduced {network['reduced']}"
        if accuracy := network.get("accuracy"):
            lost = [f"{form} {value:.3f}" for form, value in accuracy.items()]
            lines.append(f"  accuracy on held-out scenes: {', '.join(lost)}")
    lines += [f"  {line}" for line in describe_steps(row["modes"])]
    paper = PAPER[row["row"]] if is_of_paper(row) else {}
    modes = [
        {
            "mode": f"{mode} {MODES[mode]}",
            "p99_ms": max((m["p99_ms"] for m in found.get("by_model", {}).values()), default=None),
            "paper": paper.get(mode),
            "bar": find_bar(row, device) if mode == "g" else None,
            "note": "" if found.get("outputs_agree", True) else "outputs differ",
            **found,
        }
        for mode, found in row["modes"].items()
    ]
    return [
        "\n".join(lines),
        tabulate(
            modes,
            "mode, time per DNN ms=time_per_dnn_ms:.3f, p99 ms=p99_ms:.3f",
            "inferences/s=inferences_per_s:.1f, GPU MiB=gpu_memory_mib:.0f, error:.0e",
            "to full=error_to_full:.0e, % less than a=less_than_a:.1f, than b=less_than_b:.1f",
            "than d=less_than_d:.1f, than e=less_than_e:.1f, than f=less_than_f:.1f",
            "paper:.1f, bar:.0f",
            ("judged, %", _show_judged),
            ("", lambda mode: mode["note"]),
        ),
    ]


def _show_judged(mode: Mapping[str, Any]) -> str | None:
    """Show the interval by which a mode is judged."""
    key = mode["mode"][:1]
    by_round = mode.get(f"less_than_{_JUDGED.get(key)}_by_round")
    return None if by_round is None else show_interval(Interval.of(by_round).to_dict(), ".1f")
