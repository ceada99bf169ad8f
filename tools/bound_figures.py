# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Figures in the documentation, each a link to the run that it comes from.

A measured figure is a reference link, which GitHub shows as a link to the run::

    The median is [3.0 ms][vga p50], above its target.

and its definition, at the end of the page, says where it comes from::

    [vga p50]: figures.md#overhead "pick(rows, part='composed').overhead_ms.p50"

The anchor is the result file, ``benchmarks/results/overhead.json``. The title is a Python
expression over the names in it, with `HELPERS` beside them. It has as many values as the text of
the link has numbers, ``[0.9 to 1.1 times][...]`` two; each is written with the decimals that the
text has. The expression ``passed`` stands for the verdict; a section that quotes a run which
missed a bar must have that link, so that a reader is told.
"""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed

from benchmarks.harness.tables import UNDECIDED, say_verdict  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PAGES = tuple(
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if path.name not in ("figures.md", "trust.md")  # generated, or its results are
)

VERDICT = "passed"
"""The expression of a verdict."""

_FENCE = re.compile(r"^```.*?^```[^\n]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\[\]]+)\]\[([^\[\]]+)\]")
_DEFINITION = re.compile(
    r'^\[(?P<label>[^\[\]]+)\]: (?P<page>\S*figures\.md)#(?P<run>[\w-]+) "(?P<expression>[^"]+)"$',
    re.MULTILINE,
)
_NUMBER = re.compile(r"(?<![\w.,])[-+]?\d+(?:,\d{3})*(?:\.\d+)?")
_HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
_INLINE_CODE = re.compile(r"`[^`\n]*`")
_QUANTITY = re.compile(
    r"(?<![\w.,/x-])\d+(?:,\d{3})*(?:\.\d+)?(?: (?:to|and|or) \d[\d,]*(?:\.\d+)?)?"
    r" ?(?:%|times\b|points\b|[mun]?s\b|[kKMG]i?B\b|bytes\b|dB\b|J\b|of \d+)"
)


class Entry(dict[str, Any]):
    """JSON object whose keys are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name!r}, but {', '.join(self)}") from None


def pick(rows: Iterable[Mapping[str, Any]], **wanted: Any) -> Any:
    """Return the only row that has these values."""
    found = [row for row in rows if all(row.get(key) == wanted[key] for key in wanted)]
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows have {wanted}, not one")
    return found[0]


def span(values: Iterable[float]) -> tuple[float, float]:
    """Return the least and the largest value."""
    taken = list(values)
    return min(taken), max(taken)


def count(answers: Iterable[bool]) -> tuple[int, int]:
    """Return how many are true, and of how many."""
    taken = list(answers)
    return sum(taken), len(taken)


HELPERS = {
    "pick": pick,
    "span": span,
    "count": count,
    **{made.__name__: made for made in (len, max, min, sorted, sum)},
}


class FigureError(Exception):
    """Figure that is bound to nothing, or to something that gives no such figure."""


def bind(text: str, results: Path = RESULTS) -> str:
    """Return the page with every bound figure as its result file has it.

    `FigureError` for a link without definition, a definition without link, a file that is not
    there, an expression that fails or has another number of values than the text, and a section
    that does not say that a run it quotes did not pass.
    """
    definitions = {found["label"]: found for found in _DEFINITION.finditer(text)}
    prose = _blank(text, _FENCE, _INLINE_CODE, _DEFINITION)
    headings = [found.start() for found in _HEADING.finditer(prose)]
    used: set[str] = set()
    quoted: dict[tuple[int, str], bool] = {}
    parts, begin = [], 0
    for link in _LINK.finditer(prose):
        shown, label = link.groups()
        if (found := definitions.get(label)) is None:
            raise FigureError(f"[{shown}][{label}] has no definition at the end of the page")
        used.add(label)
        place = bisect(headings, link.start()), found["run"]
        quoted[place] = quoted.get(place, False) or found["expression"] == VERDICT
        try:
            value = evaluate(found["expression"], _load(results, found["run"]))
            parts += [text[begin : link.start()], f"[{write(shown, value)}][{label}]"]
        except Exception as error:
            raise FigureError(f"[{shown}][{label}]: {error}") from error
        begin = link.end()
    for (_, run), is_said in quoted.items():
        if not is_said and (verdict := _load(results, run).get("passed")) in (False, UNDECIDED):
            raise FigureError(
                f"figures of {run}, which did not pass ({say_verdict(verdict)}): say so in that "
                "section"
            )
    if unused := set(definitions) - used:
        raise FigureError(f"defined but not used: {', '.join(sorted(unused))}")
    return "".join([*parts, text[begin:]])


def evaluate(expression: str, result: Mapping[str, Any]) -> Any:
    """Find what an expression is in a result; pages of this checkout only, it can run anything."""
    names = {**result, **HELPERS, "__builtins__": {}}
    value = eval(expression, names)
    return say_verdict(value) if expression == VERDICT else value


def write(text: str, value: Any) -> str:
    """Write values in place of the numbers of a text, with the decimals that these have."""
    if isinstance(value, str):
        return value
    values = list(value) if isinstance(value, Sequence) else [value]
    numbers = list(_NUMBER.finditer(text))
    if len(numbers) != len(values):
        raise ValueError(f"{len(numbers)} numbers in the text, {len(values)} values: {values}")
    for number, one in reversed(list(zip(numbers, values, strict=True))):
        decimals = len(number[0].partition(".")[2])
        sign = "+" if number[0].startswith("+") else ""
        comma = "," if abs(one) >= 10_000 else ""
        shown = f"{one:{sign}{comma}.{decimals}f}"
        text = text[: number.start()] + shown + text[number.end() :]
    return text


def find_unbound(text: str) -> list[str]:
    """Find the quantities of a page that are bound to nothing, each with its line."""
    return [
        f"{number}: {found[0]}"
        for number, line in enumerate(
            _blank(text, _FENCE, _INLINE_CODE, _DEFINITION, _LINK).splitlines(), 1
        )
        for found in _QUANTITY.finditer(line)
    ]


def collect_unbound() -> dict[str, list[str]]:
    """Collect the quantities that are bound to nothing by page, for a snapshot.

    They should be rules, limits and examples: what was measured comes from a file.
    """
    found = {
        page.relative_to(ROOT).as_posix(): [
            line.partition(": ")[2] for line in find_unbound(page.read_text(encoding="utf-8"))
        ]
        for page in PAGES
    }
    return {page: sorted(quantities) for page, quantities in found.items() if quantities}


def _blank(text: str, *patterns: re.Pattern[str]) -> str:
    """Replace what matches by as many spaces, line by line."""
    for pattern in patterns:
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return text


@cache
def _load(results: Path, run: str) -> Mapping[str, Any]:
    path = results / f"{run.replace('-', '_')}.json"
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"), object_hook=Entry)
    return found
