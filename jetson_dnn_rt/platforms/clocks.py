# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Clock configurations of a board, numbered.

A board has clock domains (CPU, GPU, memory), each with its options; a configuration is one option
of each. Configurations are numbered in mixed radix: the last domain varies fastest, 0 is the
slowest option everywhere and the last number the fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

DELAYS_NS = {"gpu": 5_000_000, "emc": 8_000_000}
"""Time until a new clock takes effect, measured on an Orin Nano (arXiv 2606.16106)."""
CPU_DELAY_NS = 1_000_000  # delay of CPU domains, whatever their name

UNKNOWN = "unknown clocks"
"""A configuration of no domain, for people: nothing shows what the clocks are."""

IntArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class ClockOption:
    """One setting of a domain."""

    frequency_hz: int  # clock; 0 = the domain is off
    cores: int = 0  # cores that are on; 0 = cores cannot be switched, or the domain is off
    mask: int = 0
    """Which cores (bit n: the n-th of the domain), only where masks count separately; else 0."""

    def __post_init__(self) -> None:
        for name in ("frequency_hz", "cores", "mask"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, must not be negative")
        if self.mask and self.mask.bit_count() != self.cores:
            raise ValueError(f"mask {self.mask:#x} does not have {self.cores} cores")


ClockConfiguration: TypeAlias = tuple[ClockOption, ...]
"""One option for each domain of a space, in its order."""


@dataclass(frozen=True, slots=True)
class ClockDomain:
    """Parts of a board that share a clock."""

    name: str
    """"cpu", "little", "big", "gpu" or "emc" (memory); "cpu1", ... where a board has more."""
    options: tuple[ClockOption, ...]  # slow to fast: rising in (frequency, cores, mask), each once
    delay_ns: int = -1
    """Time from a write until the clock has changed; -1 = the default of its kind."""

    def __post_init__(self) -> None:
        if not self.options:
            raise ValueError(f"domain {self.name!r} has no options")
        if any(a >= b for a, b in pairwise(self.options)):
            raise ValueError(f"options of domain {self.name!r} are not rising")
        if self.delay_ns < 0:
            object.__setattr__(self, "delay_ns", DELAYS_NS.get(self.name, CPU_DELAY_NS))

    def nearest(self, option: ClockOption) -> int:
        """Index of the option most like `option`: cores first, then mask, then frequency."""

        def distance(index: int) -> tuple[bool, int, int, int]:
            other = self.options[index]
            return (
                (other.frequency_hz == 0) != (option.frequency_hz == 0),
                abs(other.cores - option.cores),
                (other.mask ^ option.mask).bit_count() if option.mask else 0,
                abs(other.frequency_hz - option.frequency_hz),
            )

        return min(range(len(self.options)), key=distance)


class ClockSpace(Sequence[ClockConfiguration]):
    """All configurations of some domains with different names, numbered.

    Without any domain it has one configuration, the empty one: unknown clocks.
    """

    slowest = 0

    def __init__(self, domains: Iterable[ClockDomain]) -> None:
        self.domains = tuple(domains)
        self.names = tuple(domain.name for domain in self.domains)
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"domains {list(self.names)} must have different names")
        strides = []
        count = 1
        for domain in reversed(self.domains):
            strides.append(count)
            count *= len(domain.options)
        self._strides = tuple(reversed(strides))
        self._count = count
        self.fastest = count - 1
        self._digits = [
            {option: digit for digit, option in enumerate(domain.options)}
            for domain in self.domains
        ]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> ClockConfiguration:  # type: ignore[override]
        """The configuration with this number."""
        pairs = zip(self.domains, self.digits(index), strict=True)
        return tuple(domain.options[digit] for domain, digit in pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClockSpace) and self.domains == other.domains

    def __hash__(self) -> int:
        return hash(self.domains)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{domain.name}: {len(domain.options)}" for domain in self.domains)
        return f"ClockSpace({sizes})"

    def digits(self, index: int) -> tuple[int, ...]:
        """The option's index in each domain, of the configuration with this number."""
        # No counting from the end: a negative number here is an unchecked "none".
        if not 0 <= index < self._count:
            raise IndexError(f"clock configuration {index} of {self._count}")
        digits = []
        for stride in self._strides:
            digit, index = divmod(index, stride)
            digits.append(digit)
        return tuple(digits)

    def number(self, digits: Sequence[int]) -> int:
        """The number of the configuration with these option indices, one per domain."""
        for domain, digit in zip(self.domains, digits, strict=True):
            if not 0 <= digit < len(domain.options):
                raise IndexError(f"option {digit} of {len(domain.options)} of {domain.name}")
        return sum(s * d for s, d in zip(self._strides, digits, strict=True))

    def index(self, configuration: ClockConfiguration) -> int:  # type: ignore[override]
        """The number of this configuration; ValueError when it is not in the space."""
        known = zip(self._digits, configuration, strict=True)
        try:
            return self.number([digits[option] for digits, option in known])
        except KeyError:
            raise ValueError(
                f"{format_clocks(self.names, configuration)} is not in {self!r}"
            ) from None

    def nearest(self, configuration: ClockConfiguration) -> int:
        """The number of the configuration most like this one (clocks read from a board)."""
        pairs = zip(self.domains, configuration, strict=True)
        return self.number([domain.nearest(option) for domain, option in pairs])

    @cached_property
    def option_indices(self) -> IntArray:
        """`digits` of every configuration, int64 [configurations, domains], read-only."""
        numbers = np.arange(self._count, dtype=np.int64)[:, np.newaxis]
        strides = np.array(self._strides, dtype=np.int64)
        sizes = np.array([len(domain.options) for domain in self.domains], dtype=np.int64)
        digits = numbers // strides % sizes
        digits.flags.writeable = False
        return digits

    def frequencies_hz(self) -> IntArray:
        """Clocks of every configuration, [configurations, domains]; 0 = off."""
        return self._gather("frequency_hz")

    def core_counts(self) -> IntArray:
        """Cores that are on, [configurations, domains]; 0 where a domain has none to switch."""
        return self._gather("cores")

    def _gather(self, field: str) -> IntArray:
        values = np.empty((self._count, len(self.domains)), dtype=np.int64)
        for column, domain in enumerate(self.domains):
            table = np.array([getattr(option, field) for option in domain.options], dtype=np.int64)
            values[:, column] = table[self.option_indices[:, column]]
        return values

    def describe(self, index: int) -> str:
        """Describe a configuration: ``cpu 2035.2 MHz x4, gpu 1300.5 MHz, emc 1866 MHz``."""
        return format_clocks(self.names, self[index])

    def delay_ns(self, before: int, after: int) -> int:
        """Time from the write until all of `after` is in effect: that of the slowest change."""
        changes = zip(self.domains, self.digits(before), self.digits(after), strict=True)
        return max((domain.delay_ns for domain, a, b in changes if a != b), default=0)


def format_clocks(names: Sequence[str], configuration: ClockConfiguration) -> str:
    """A configuration as text; `UNKNOWN` when there is no domain: they may be anything."""
    parts = []
    for name, option in zip(names, configuration, strict=True):
        if option.frequency_hz == 0:
            parts.append(f"{name} off")
            continue
        cores = f" x{option.cores}" if option.cores else ""
        # A count alone means the first cores of a domain.
        plain = option.mask in (0, (1 << option.cores) - 1)
        mask = "" if plain else f" ({option.mask:#x})"
        parts.append(f"{name} {option.frequency_hz / 1e6:.10g} MHz{cores}{mask}")
    return ", ".join(parts) or UNKNOWN
