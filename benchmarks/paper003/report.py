"""What the table of paper 003 says, which bars were met, and the paper's own figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.harness.networks import report_models
from benchmarks.harness.tables import Report, Table, flatten, say_verdict, tabulate
from jetson_dnn_rt.cli.text import format_figure

DEFAULT, AMP, TUNED, BOTH = TVM_ROWS = ("tvm", "tvm +amp", "tvm tuned", "tvm tuned +amp")
OPENCV = "opencv-fp32"
BARS = {
    "times_faster_than_default": 5.0,
    "times_faster_than_opencv": 1.0,
    "tuning_minutes": 60.0,
    "points_lost_by_amp": 0.3,
}
PAPER: dict[str, Any] = {
    "where": "Jetson AGX Xavier, 224 x 224, mean of 50 runs, TVM 0.9.0dev on the GPU",
    "trials": 20_000,
    "tvm_tuned_amp_ms": {"resnet50": 5.57, "mobilenet_v2": 1.04, "efficientnet_v2_s": 7.42},
    "tensorrt_fp16_ms": {"resnet50": 3.05, "mobilenet_v2": 1.37, "efficientnet_v2_s": 7.13},
    "both_times_faster_than_default": [3.2, 5.4],
    "tuned_saves_percent": [60, 77],
    "amp_faster_percent": {"resnet50": -25, "mobilenet_v2": 15, "efficientnet_v2_s": 38},
    "amp_saves_tuned_percent": [10, 34],
    "both_times_faster_than_opencv": [18.1, 34.2],
    "top1_fp32_fp16": {"resnet50": [78.2, 78.0], "mobilenet_v2": [73.0, 73.0]},
}
"""Tables 2 and 3, and the ranges in the text; the figures have no numbers in them."""


def judge(result: Mapping[str, Any], barred: Mapping[str, bool]) -> dict[str, bool | None]:
    """Which bars were met, by bar in words; None where there was nothing to compare with.

    `barred` says which networks have bars of speed.
    """
    most = BARS["tuning_minutes"]
    reached: dict[str, bool | None] = {
        f"tuning took at most {most:g} minutes": _count_minutes(result) <= most
    }
    for name, found in result["models"].items():
        if not barred[name]:
            continue
        least = BARS["times_faster_than_default"]
        aim = f"{name}: tuned at least {least:g} x TVM's default"
        reached[aim] = _is_faster(found, "default", least)
        aim = f"{name}: tuned faster than OpenCV DNN"
        reached[aim] = _is_faster(found, "opencv", BARS["times_faster_than_opencv"])
        row = _by_name(found)[TUNED]
        right = "p50_ms" in row and not row["fault"]
        reached[f"{name}: tuned computes what torch does"] = right
    most = BARS["points_lost_by_amp"]
    for name, found in result["accuracy"].items():
        aim = f"{name}: AMP loses at most {most:g} points"
        reached[aim] = None if "note" in found else found["points_lost"] <= most
    return reached


def _count_minutes(result: Mapping[str, Any]) -> float:
    return float(sum(entry["seconds"] for entry in result["tuning"].values())) / 60.0


def _by_name(found: Mapping[str, Any]) -> dict[str, Any]:
    return {row["row"]: row for row in found["rows"]}


def _is_faster(found: Mapping[str, Any], key: str, least: float) -> bool | None:
    rows = _by_name(found)
    if "p50_ms" not in rows[TUNED]:
        return False
    if key == "opencv" and "p50_ms" not in rows[OPENCV]:
        return None  # its result is wrong, or there is none
    ratio = rows[TUNED].get(f"times_faster_than_{key}")
    if ratio is None:
        return False
    return bool(ratio >= least if key == "default" else ratio > least)


def report(result: Mapping[str, Any]) -> Report:
    """Tuning, a table for each network, the paper's figures, accuracy, and the bars."""
    tuning = [
        {**found, "name": name, "share": result["shares"][name]}
        for name, found in result["tuning"].items()
    ]
    parts: list[str | Table] = [
        f"{result['target']}: {_count_minutes(result):.1f} minutes of tuning, "
        f"{result['minutes']:g} allowed",
        tabulate(
            tuning,
            "tuning=name, share:.0%",
            ("minutes", lambda row: format_figure(row["seconds"] / 60.0, 1)),
            (
                "kernels",
                lambda row: f"{row['tuned']} of {row['kernels']}" if "tuned" in row else None,
            ),
            "trials",
            ("", lambda row: row.get("note", "")),
        ),
    ]
    parts += report_models(
        result["models"],
        lambda found: "",
        "row, mean ms=mean_ms:.2f, p50 ms=p50_ms:.2f, p99 ms=p99_ms:.2f, runs",
        "x default=times_faster_than_default:.2f, x OpenCV=times_faster_than_opencv:.2f",
        "error=relative_error:.0e, agreement:.3f",
        ("", lambda row: "; ".join(filter(None, (row["note"], row["fault"])))),
    )
    if result["models"]:
        parts += [f"the paper's: {result['paper']['where']}", _compare_paper(result)]
    if result["accuracy"]:
        parts.append(
            tabulate(
                flatten(result["accuracy"], "accuracy of AMP"),
                "accuracy of AMP, metric, scenes, fp32:.4f, AMP=amp:.4f",
                "points lost=points_lost:.2f",
                ("computed by", lambda row: row.get("note") or row["computed_by"]),
            )
        )
    words = {True: "yes", False: "NO", None: "-"}
    parts.append("\n".join(f"{words[done]:4s}{aim}" for aim, done in result["reached"].items()))
    return [*parts, say_verdict(result["passed"])]


def _compare_paper(result: Mapping[str, Any]) -> Table:
    """The paper's figures, and the same ones of this run."""
    paper = result["paper"]
    rows = []
    for name, found in result["models"].items():
        times = {row["row"]: row.get("mean_ms") for row in found["rows"]}
        figures = (
            (times[BOTH], 2),
            (paper["tvm_tuned_amp_ms"].get(name), 2),
            (times["tensorrt-fp16"], 2),
            (paper["tensorrt_fp16_ms"].get(name), 2),
            (_divide(times[DEFAULT], times[BOTH]), 1),
            (_divide(times[OPENCV], times[BOTH]), 2),
            (_find_saved(times[DEFAULT], times[TUNED]), 0),
            (_find_saved(times[TUNED], times[BOTH]), 0),
            (_find_saved(times[DEFAULT], times[AMP]), 0),
            (paper["amp_faster_percent"].get(name), 0),
        )
        rows.append([name, *(format_figure(value, digits) for value, digits in figures)])
    ranges = (
        "both_times_faster_than_default", "both_times_faster_than_opencv",
        "tuned_saves_percent", "amp_saves_tuned_percent",
    )  # fmt: skip
    shown = [" to ".join(map(str, paper[key])) for key in ranges]
    rows.append(["the paper", "", "", "", "", *shown, "", ""])
    header = (
        "mean ms, both, paper, TensorRT fp16, paper, both x default, both x OpenCV, "
        "tuning saves %, AMP saves tuned %, AMP saves default %, paper"
    )
    return Table(header.split(", "), rows)


def _divide(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _find_saved(before: float | None, after: float | None) -> float | None:
    share = _divide(after, before)
    return None if share is None else 100.0 * (1.0 - share)
