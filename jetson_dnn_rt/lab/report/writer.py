"""Writes a report: ``report.html``, which needs no other file, and the figures beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.report.page import make_page
from jetson_dnn_rt.lab.report.report import Report, TaskReport
from jetson_dnn_rt.lab.wcet.statement import Campaign
from jetson_dnn_rt.tasks import Outcome

PAGE, FIGURES = "report.html", "figures"


@dataclass(frozen=True)
class WrittenReport:
    """The files of a report.

    Attributes
    ----------
    page : Path
        The HTML file.
    figures : list of Path
        PNG files.
    """

    page: Path
    figures: list[Path]


def write_report(report: Report, folder: Path) -> WrittenReport:
    """Write page and figures; files of an earlier report with the same names are replaced.

    Raises
    ------
    ConfigurationError
        When the folder cannot be written.
    """
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        files = []
        for picture in report.pictures:
            file = folder / FIGURES / f"{picture.name}.png"
            file.write_bytes(picture.wide)
            files.append(file)
        page = folder / PAGE
        page.write_text(make_page(report), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot write {folder}: {error.strerror}") from error
    return WrittenReport(page, files)


def to_dict(report: Report) -> dict[str, Any]:
    """What the page says, for programs; times in milliseconds."""
    schedulability = report.schedulability
    return {
        "title": report.title,
        "seconds": report.first.span_ns / 1e9,
        "tasks": {item.task.name: _task_dict(item) for item in report.tasks},
        "schedulability": None
        if schedulability is None
        else {
            "workers": schedulability.workers,
            "mean_load": schedulability.mean_load,
            "verdicts": {
                name: {
                    "schedulable": verdict.schedulable,
                    "utilization": verdict.utilization,
                    "reason": verdict.reason,
                }
                for name, verdict in schedulability.verdicts.items()
            },
            "least_deadline_ms": {
                task: {name: _to_ms(value) for name, value in needs.least_deadline_ns.items()}
                for task, needs in schedulability.needs.items()
            },
            "together": [choice.variants for choice in schedulability.together],
        },
        "comparisons": [
            {
                "task": shift.task,
                "variant": shift.variant,
                "before": report.first.label,
                "after": shift.condition,
                "times_ms": {n: [a / 1e6, b / 1e6] for n, (a, b) in shift.times_ns.items()},
                "missed": list(shift.missed),
            }
            for group in report.shifts
            for shift in group
        ],
        "advice": report.advice,
    }


def _to_ms(time_ns: float | None) -> float | None:
    # NaN is no JSON.
    return None if time_ns is None or time_ns != time_ns else time_ns / 1e6


def _task_dict(report: TaskReport) -> dict[str, Any]:
    task, bursts = report.task, report.bursts
    return {
        "frames": len(task),
        "outcomes": {outcome.value: task.count(outcome) for outcome in Outcome},
        "missed_ratio": float(task.missed.mean()),
        "deadline_ms": task.usual_deadline_ns / 1e6,
        "longest_burst": bursts.longest,
        "longest_without_result_ms": bursts.longest_ns / 1e6,
        "campaigns": [_campaign_dict(campaign) for _, campaign in report.campaigns],
    }


def _campaign_dict(campaign: Campaign) -> dict[str, Any]:
    return {
        "title": campaign.title,
        "count": campaign.count,
        "support": campaign.support.value,
        "hwm_ms": _to_ms(campaign.hwm_ns),
        "p99_ms": _to_ms(campaign.p99_ns),
        "bounds": [
            {
                "exceedance": bound.exceedance,
                "support": bound.support.value,
                "upper_ms": _to_ms(bound.upper_ns),
            }
            for bound in campaign.bounds
        ],
        "failed_tests": [test.name for test in campaign.tests if not test.passed],
        "statement": campaign.statement,
    }
