"""Figures and tables of `multi-dnn`, the paper's beside them, and the bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness.tables import Report, Table, say_verdict, tabulate
from benchmarks.harness.timing import Times, quantile_ms

MIX = "mix"

MODES = {
    "a": "original, processes",
    "b": "Tucker, processes",
    "c": "Tucker, queue",
    "d": "original, queue",
    "e": "ours",
}

PAPER = {
    "vgg16": {"b": 34.4, "c": 62.9},
    "resnet152": {"b": -12.4, "c": 56.1},
    "inception_v3": {"b": -16.3, "c": 47.9},
    "regnet_y_32gf": {"b": 42.9, "c": 75.6},
    MIX: {"b": 42.0, "c": 74.6},
}
"""Per cent less time per DNN than mode a, on a Jetson AGX Xavier, 8 instances (RegNetY: 7); for
the mix the largest of its four networks (JKICE 26(6), 2022, section 4.4)."""

BARS = {"vgg16": 80.0, "resnet152": 65.0, "inception_v3": 65.0, "regnet_y_32gf": 80.0, MIX: 80.0}
"""Per cent less time per DNN of mode e against mode a, on a GPU with 8 instances."""

BAR_INSTANCES = 8

Rounds = Mapping[str, Sequence[Sequence[Times]]]
"""By mode, for each round, the times of each instance in ns."""


def describe_modes(
    rounds: Rounds,
    models: Sequence[str],
    facts: Mapping[str, Mapping[str, Any]],
    notes: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    """Figures of all modes of a row.

    ``time_per_dnn_ms`` is the mean over the instances of their medians, in the median over the
    rounds; ``less_than_X`` how much less that is than in mode X, per cent, in pairs of one round.
    ``by_model`` has quantiles over all single inferences.
    """
    means = {mode: np.array([_mean_ms(times) for times in row]) for mode, row in rounds.items()}
    modes: dict[str, dict[str, Any]] = {}
    for mode in MODES:
        if mode not in means:
            modes[mode] = {"note": notes.get(mode, "not run")}
            continue
        row: dict[str, Any] = {
            "time_per_dnn_ms": round(float(np.median(means[mode])), 4),
            "by_model": {
                model: _quantiles(rounds[mode], [i for i, m in enumerate(models) if m == model])
                for model in dict.fromkeys(models)
            },
            "inferences_per_s": round(
                float(np.median([_throughput(times) for times in rounds[mode]])), 2
            ),
            **facts.get(mode, {}),
        }
        for other in "abd":
            if other in means and other != mode:
                ratios = means[mode] / means[other]
                row[f"less_than_{other}"] = round(100.0 * (1.0 - float(np.median(ratios))), 1)
        modes[mode] = row
    if len(set(models)) > 1 and "a" in rounds:
        # How much less time each network of a mix takes.
        for mode in rounds:
            for model, figures in modes[mode]["by_model"].items():
                base = modes["a"]["by_model"][model]["p50_ms"]
                figures["less_than_a"] = round(100.0 * (1.0 - figures["p50_ms"] / base), 1)
    return modes


def _mean_ms(times: Sequence[Times]) -> float:
    return float(np.mean([np.median(taken) for taken in times])) * 1e-6


def _throughput(times: Sequence[Times]) -> float:
    """Of a closed loop: each instance does one inference after the other."""
    return float(sum(1e9 / np.mean(taken) for taken in times))


def _quantiles(row: Sequence[Sequence[Times]], instances: Sequence[int]) -> dict[str, Any]:
    taken = np.concatenate([times[index] for times in row for index in instances])
    return {
        "p50_ms": round(quantile_ms(taken, 0.5), 4),
        "p99_ms": round(quantile_ms(taken, 0.99), 4),
        "count": len(taken),
    }


def judge(result: Mapping[str, Any]) -> bool | None:
    """Whether the bars are met by the rows that there are; None where no bar applies.

    On a GPU those of `BARS`, with 8 instances; on a CPU ours must not be slower than processes,
    whether decomposed or not. Outputs must agree everywhere.
    """
    verdicts = [judge_row(row, result["device"]) for row in result["rows"]]
    known = [verdict for verdict in verdicts if verdict is not None]
    return all(known) if known else None


def judge_row(row: Mapping[str, Any], device: str) -> bool | None:
    """The verdict on one row."""
    modes = row["modes"]
    if any(not mode.get("outputs_agree", True) for mode in modes.values()):
        return False
    ours = modes["e"]
    if "less_than_a" not in ours:
        return None
    if device != "cuda":
        return bool(min(ours["less_than_a"], ours.get("less_than_b", 100.0)) >= 0.0)
    bar = find_bar(row, device)
    return None if bar is None else bool(ours["less_than_a"] >= bar)


def find_bar(row: Mapping[str, Any], device: str) -> float | None:
    """How much less time mode e must take than mode a, per cent; None where there is no bar."""
    if device != "cuda" or row["instances"] != BAR_INSTANCES or not is_of_paper(row):
        return None
    return BARS[row["row"]]


def is_of_paper(row: Mapping[str, Any]) -> bool:
    """Whether the paper has such a row."""
    return row["row"] in PAPER and all(model in PAPER for model in row["models"])


def report(result: Mapping[str, Any]) -> Report:
    """A table for each row."""
    settings, device = result["settings"], result["device"]
    parts: list[str | Table] = [
        f"torch {settings['torch']} on {device}, {settings['cores']} cores, CUDA MPS not used; "
        "per cent: less time per DNN, paper: on a Jetson AGX Xavier"
    ]
    if device != "cuda":
        parts.append("no GPU: the paper's comparison is about GPUs; the bar here is a to e")
    for row in result["rows"]:
        parts += report_row(row, device)
    return [*parts, say_verdict(result["passed"])]


def report_row(row: Mapping[str, Any], device: str) -> Report:
    """One row as a table, a line for each mode."""
    lines = [f"{row['row']}: {row['instances']} instances, {row['rounds']} rounds"]
    for name, network in row["networks"].items():
        size = "x".join(map(str, network["input"]))
        reduced = f", Tucker -{network['reduction']} % of them" if "reduction" in network else ""
        macs = f"{network['gmacs']} GMACs{reduced}"
        lines.append(f"  {name} ({size}): {macs}; ours {network['variant']}")
    paper = PAPER[row["row"]] if is_of_paper(row) else {}
    modes = [
        {
            "mode": f"{mode} {MODES[mode]}",
            "p99_ms": max(
                (one["p99_ms"] for one in figures.get("by_model", {}).values()), default=None
            ),
            "paper": paper.get(mode),
            "bar": find_bar(row, device) if mode == "e" else None,
            **figures,
        }
        for mode, figures in row["modes"].items()
    ]

    def remark(mode: Mapping[str, Any]) -> str:
        return mode.get("note") or ("" if mode.get("outputs_agree", True) else "outputs differ")

    return [
        "\n".join(lines),
        tabulate(
            modes,
            "mode, time per DNN ms=time_per_dnn_ms:.3f, p99 ms=p99_ms:.3f",
            "inferences/s=inferences_per_s:.1f, GPU MiB=gpu_memory_mib:.0f, error:.0e",
            "% less than a=less_than_a:.1f, than b=less_than_b:.1f, than d=less_than_d:.1f",
            "paper:.1f, bar:.0f",
            ("", remark),
        ),
    ]
