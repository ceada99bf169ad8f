"""Figures and tables of `bench multi-dnn`, the paper's beside them, and the bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from benchmarks.rounds import quantile_ms
from jetson_dnn_rt.cli.text import format_figure, format_rows

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

Times = npt.NDArray[np.int64]
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
    _compare_models(modes, rounds, models)
    return modes


def _compare_models(
    modes: dict[str, dict[str, Any]], rounds: Rounds, models: Sequence[str]
) -> None:
    """How much less time each network takes than in mode a, in a mix."""
    if len(set(models)) == 1 or "a" not in rounds:
        return
    for mode in rounds:
        for model, figures in modes[mode]["by_model"].items():
            base = modes["a"]["by_model"][model]["p50_ms"]
            figures["less_than_a"] = round(100.0 * (1.0 - figures["p50_ms"] / base), 1)


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


def format_table(result: dict[str, object]) -> str:
    """Return the result as tables for people."""
    rows = cast("list[dict[str, Any]]", result["rows"])
    settings = cast("dict[str, Any]", result["settings"])
    text = [
        f"torch {settings['torch']} on {result['device']}, {settings['cores']} cores, CUDA MPS "
        f"not used; per cent: less time per DNN, paper: on a Jetson AGX Xavier\n"
    ]
    if result["device"] != "cuda":
        text.append("no GPU: the paper's comparison is about GPUs; the bar here is a to e\n")
    text += [format_row(row, str(result["device"])) for row in rows]
    verdict = {None: "no bar applies", True: "passed", False: "NOT passed"}[
        cast("bool | None", result["passed"])
    ]
    return "\n".join([*text, verdict])


def format_row(row: Mapping[str, Any], device: str) -> str:
    """Return one row as a table."""
    lines = [f"{row['row']}: {row['instances']} instances, {row['rounds']} rounds"]
    for name, network in row["networks"].items():
        size = "x".join(map(str, network["input"]))
        reduced = f", Tucker -{network['reduction']} % of them" if "reduction" in network else ""
        lines.append(f"  {name} ({size}): {network['gmacs']} GMACs{reduced}; ours "
                     f"{network['variant']}")  # fmt: skip
    header = (
        "", "time per DNN ms", "p99 ms", "inferences/s", "GPU MiB", "error", "% less than a",
        "than b", "than d", "paper", "bar", "",
    )  # fmt: skip
    cells = []
    paper = PAPER[row["row"]] if is_of_paper(row) else {}
    for mode, figures in row["modes"].items():
        if "note" in figures:
            cells.append([f"{mode} {MODES[mode]}", *["-"] * 10, figures["note"]])
            continue
        p99_ms = max(model["p99_ms"] for model in figures["by_model"].values())
        agrees = "" if figures.get("outputs_agree", True) else "outputs differ"
        cells.append(
            [
                f"{mode} {MODES[mode]}",
                format_figure(figures["time_per_dnn_ms"], 3),
                format_figure(p99_ms, 3),
                format_figure(figures["inferences_per_s"], 1),
                format_figure(figures.get("gpu_memory_mib"), 0),
                f"{figures.get('error', 0.0):.0e}",
                format_figure(figures.get("less_than_a"), 1),
                format_figure(figures.get("less_than_b"), 1),
                format_figure(figures.get("less_than_d"), 1),
                format_figure(paper.get(mode), 1),
                format_figure(find_bar(row, device) if mode == "e" else None, 0),
                agrees,
            ]
        )
    return "\n".join([*lines, "", format_rows(header, cells), ""])
