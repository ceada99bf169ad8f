# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Numbers formatted for people: 18.2 ms, 0.30 %, 1 in 10,000."""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST_DEADLINES = 4
"""Deadlines of a task that are listed one by one."""


def format_ms(time_ns: float) -> str:
    """Format a time with three digits: ``0.820 ms``, ``18.2 ms``, ``142 ms``, ``1.33 s``."""
    if not math.isfinite(time_ns):
        return "–"
    if abs(time_ns) >= 0.9995e9:
        return f"{format_digits(time_ns / 1e9)} s"
    if 0.0 < abs(time_ns) < 1e4:
        return f"{format_digits(time_ns / 1e3)} µs"
    return f"{format_digits(time_ns / 1e6)} ms"


def format_deadlines(deadlines_ns: Sequence[int]) -> str:
    """Format the deadlines that a task had: ``80 ms``, ``40 ms and 80 ms``, a range of many."""
    if len(deadlines_ns) > MOST_DEADLINES:
        first, last = format_ms(deadlines_ns[0]), format_ms(deadlines_ns[-1])
        return f"{first} to {last} ({len(deadlines_ns)} values)"
    return join_words([format_ms(deadline_ns) for deadline_ns in deadlines_ns])


def format_duration(time_ns: float) -> str:
    """Format the length of a recording: ``45.2 s``, ``55.6 min``, ``2.10 h``."""
    seconds = time_ns / 1e9
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2.0 * length:
            return f"{format_digits(seconds / length)} {unit}"
    return f"{format_digits(seconds)} s"


def format_digits(value: float, digits: int = 3) -> str:
    """Format with significant digits, never an exponent: ``0.820``, ``18.2``, ``1,420``."""
    if value == 0.0:
        return "0"
    # Rounded first: 99.97 has the digits of 100, not one more.
    value = float(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 6)}f}"
    return text.rstrip("0").rstrip(".") if decimals > digits else text


def format_share(share: float) -> str:
    """Format a share in percent; small ones keep two significant digits."""
    if not math.isfinite(share):
        return "–"
    percent = 100.0 * share
    if percent == 0.0:
        return "0 %"
    if percent >= 99.95 and share < 1.0:
        return f"{percent:.3f} %"
    if percent >= 101.0:
        return f"{percent:,.0f} %"
    return f"{percent:.1f} %" if percent >= 0.995 else f"{format_digits(percent, 2)} %"


def format_exceedance(probability: float) -> str:
    """Format a probability as ``1 in 10,000``."""
    return f"1 in {round(1.0 / probability):,}" if probability > 0.0 else "never"


def format_every(probability: float, period_ns: float) -> str:
    """Format how often such frames come: ``about every 5.6 min``; empty without a period."""
    if not (probability > 0.0 and period_ns > 0.0):
        return ""
    seconds = period_ns / 1e9 / probability
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            return f"about every {format_digits(seconds / length, 2)} {unit}"
    return f"about every {format_digits(seconds, 2)} s"


def format_count(count: int, thing: str, things: str = "") -> str:
    """Format a count with its noun: ``1 frame``, ``1,800 frames``."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def join_words(words: list[str]) -> str:
    """Join words to a list: ``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
