"""What the table of paper 003 says, which bars were met, and the paper's own figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetson_dnn_rt.cli.text import Cell, format_figure, format_rows

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
    """Which bars were met.

    Parameters
    ----------
    result : mapping
        ``tuning``, ``models`` and ``accuracy`` as the benchmark has them.
    barred : mapping of str to bool
        Which networks have bars of speed.

    Returns
    -------
    dict
        By bar, in words; None where there was nothing to compare with.
    """
    spent_min = sum(entry["seconds"] for entry in result["tuning"].values()) / 60.0
    most = BARS["tuning_minutes"]
    reached: dict[str, bool | None] = {f"tuning took at most {most:g} minutes": spent_min <= most}
    for name, found in result["models"].items():
        if not barred[name]:
            continue
        for key, words in (("default", "TVM's default"), ("opencv", "OpenCV DNN")):
            least = BARS[f"times_faster_than_{key}"]
            aim = f"{name}: tuned at least {least:g} x {words}"
            if key == "opencv":
                aim = f"{name}: tuned faster than {words}"
            reached[aim] = _is_faster(found, key, least)
        reached[f"{name}: tuned computes what torch does"] = _is_right(found)
    most = BARS["points_lost_by_amp"]
    for name, found in result["accuracy"].items():
        aim = f"{name}: AMP loses at most {most:g} points"
        reached[aim] = None if "note" in found else found["points_lost"] <= most
    return reached


def _is_faster(found: Mapping[str, Any], key: str, least: float) -> bool | None:
    rows = {row["row"]: row for row in found["rows"]}
    if "p50_ms" not in rows[TUNED]:
        return False
    if key == "opencv" and "p50_ms" not in rows[OPENCV]:
        return None  # its result is wrong, or there is none
    ratio = rows[TUNED].get(f"times_faster_than_{key}")
    if ratio is None:
        return False
    return bool(ratio >= least if key == "default" else ratio > least)


def _is_right(found: Mapping[str, Any]) -> bool:
    row = next(row for row in found["rows"] if row["row"] == TUNED)
    return "p50_ms" in row and not row["fault"]


def format_table(result: Mapping[str, Any]) -> str:
    """Return the result as tables for people."""
    text = [_format_tuning(result)]
    text += [_format_model(name, found) for name, found in result["models"].items()]
    if result["models"]:
        text.append(_format_paper(result))
    if result["accuracy"]:
        text.append(_format_accuracy(result["accuracy"]))
    words = {True: "yes", False: "NO", None: "-"}
    text.append("\n".join(f"{words[done]:4s}{aim}" for aim, done in result["reached"].items()))
    text.append({True: "passed", False: "NOT passed", None: "not judged"}[result["passed"]])
    return "\n\n".join(text)


def _format_tuning(result: Mapping[str, Any]) -> str:
    rows: list[list[Cell]] = []
    for name, found in result["tuning"].items():
        rows.append(
            [
                name,
                f"{100 * result['shares'][name]:.0f} %",
                format_figure(found["seconds"] / 60.0, 1),
                f"{found['tuned']} of {found['kernels']}" if "tuned" in found else "-",
                format_figure(found.get("trials"), 0),
                found.get("note", ""),
            ]
        )
    header = ("tuning", "share", "minutes", "kernels", "trials", "")
    spent_min = sum(found["seconds"] for found in result["tuning"].values()) / 60.0
    return (
        f"{result['target']}: {spent_min:.1f} minutes of tuning, {result['minutes']:g} allowed"
        f"\n\n{format_rows(header, rows)}"
    )


def _format_model(name: str, found: Mapping[str, Any]) -> str:
    header = (
        "row", "mean ms", "p50 ms", "p99 ms", "runs", "x default", "x OpenCV", "error",
        "agreement", "",
    )  # fmt: skip
    rows: list[list[Cell]] = []
    for row in found["rows"]:
        error = row.get("relative_error")
        rows.append(
            [
                row["row"],
                format_figure(row.get("mean_ms"), 2),
                format_figure(row.get("p50_ms"), 2),
                format_figure(row.get("p99_ms"), 2),
                format_figure(row.get("runs"), 0),
                format_figure(row.get("times_faster_than_default"), 2),
                format_figure(row.get("times_faster_than_opencv"), 2),
                "-" if error is None else f"{error:.0e}",
                format_figure(row.get("agreement"), 3),
                "; ".join(word for word in (row["note"], row["fault"]) if word),
            ]
        )
    size = "x".join(map(str, found["input"][2:]))
    return f"{name} ({size})\n\n{format_rows(header, rows)}"


def _format_paper(result: Mapping[str, Any]) -> str:
    """The paper's figures, and the same ones of this run."""
    paper = result["paper"]
    rows: list[list[Cell]] = []
    for name, found in result["models"].items():
        times = {row["row"]: row.get("mean_ms") for row in found["rows"]}
        rows.append(
            [
                name,
                format_figure(times[BOTH], 2),
                format_figure(paper["tvm_tuned_amp_ms"].get(name), 2),
                format_figure(times["tensorrt-fp16"], 2),
                format_figure(paper["tensorrt_fp16_ms"].get(name), 2),
                format_figure(_divide(times[DEFAULT], times[BOTH]), 1),
                format_figure(_divide(times[OPENCV], times[BOTH]), 2),
                format_figure(_find_saved(times[DEFAULT], times[TUNED]), 0),
                format_figure(_find_saved(times[TUNED], times[BOTH]), 0),
                format_figure(_find_saved(times[DEFAULT], times[AMP]), 0),
                format_figure(paper["amp_faster_percent"].get(name), 0),
            ]
        )
    ranges = (
        "both_times_faster_than_default", "both_times_faster_than_opencv",
        "tuned_saves_percent", "amp_saves_tuned_percent",
    )  # fmt: skip
    shown = [" to ".join(map(str, paper[key])) for key in ranges]
    rows.append(["the paper", "", "", "", "", *shown, "", ""])
    header = (
        "mean ms", "both", "paper", "TensorRT fp16", "paper", "both x default", "both x OpenCV",
        "tuning saves %", "AMP saves tuned %", "AMP saves default %", "paper",
    )  # fmt: skip
    return f"the paper's: {paper['where']}\n\n{format_rows(header, rows)}"


def _divide(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _find_saved(before: float | None, after: float | None) -> float | None:
    share = _divide(after, before)
    return None if share is None else 100.0 * (1.0 - share)


def _format_accuracy(accuracy: Mapping[str, Any]) -> str:
    rows: list[list[Cell]] = [
        [
            name,
            found["metric"],
            found["scenes"],
            format_figure(found.get("fp32"), 4),
            format_figure(found.get("amp"), 4),
            format_figure(found.get("points_lost"), 2),
            found.get("note") or found["computed_by"],
        ]
        for name, found in accuracy.items()
    ]
    header = ("accuracy of AMP", "metric", "scenes", "fp32", "AMP", "points lost", "computed by")
    return format_rows(header, rows)
