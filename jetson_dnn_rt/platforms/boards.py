# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Data of each Jetson: clock tables, power modes, and how its rails add up.

Everything that a board reports itself (tables of CPU and GPU, ``/etc/nvpmodel.conf``) is read from
it; this module has the rest, and the spaces that simulations and tests run on. Sources: NVIDIA's
kernels and nvpmodel files; the spaces of the TX2 and the AGX Xavier are those of NeuOS (Bateni &
Liu, ATC 2020), which counts 11,760 and 51,968 configurations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption, ClockSpace

TX2_CPU_MHZ = (345.6, 652.8, 960.0, 1267.2, 1574.4, 1881.6, 2035.2)
"""Every other of the 12 steps of the A57 and the Denver cores; NeuOS's choice."""
TX2_GPU_MHZ = (140.25, 497.25, 675.75, 854.25, 1032.75, 1211.25, 1300.5)
TX2_EMC_MHZ = (204.0, 800.0, 1331.2, 1866.0)
XAVIER_CPU_MHZ = tuple(round(115.2 + 76.8 * step, 1) for step in range(29))
XAVIER_GPU_MHZ = (
    *(114.75, 216.75, 318.75, 420.75, 522.75, 624.75, 675.75),
    *(828.75, 905.25, 1032.75, 1198.5, 1236.75, 1338.75, 1377.0),
)
XAVIER_EMC_MHZ = (204.0, 800.0, 1066.0, 1331.2, 1600.0, 2133.0)
AGX_ORIN_CPU_MHZ = (*(round(115.2 + 76.8 * step, 1) for step in range(28)), 2201.6)
AGX_ORIN_GPU_MHZ = (*(306.0 + 102.0 * step for step in range(10)), 1300.5)
ORIN_EMC_MHZ = (204.0, 665.6, 2133.0, 3199.0)


def make_options(
    frequencies_mhz: Iterable[float], cores: Sequence[int] = (0,), *, off: bool = False
) -> tuple[ClockOption, ...]:
    """Every frequency with every number of cores, slow to fast; `off` adds the option off."""
    options = [ClockOption(round(mhz * 1e6), count) for mhz in frequencies_mhz for count in cores]
    return tuple(sorted([ClockOption(0), *options] if off else options))


def make_space(**options: tuple[ClockOption, ...]) -> ClockSpace:
    """The space of domains by name."""
    return ClockSpace(ClockDomain(name, each) for name, each in options.items())


def tx2_space() -> ClockSpace:
    """TX2: 7 x 4 LITTLE (A57), off or 7 x 2 big (Denver), 7 GPU, 4 EMC: 11,760 configurations."""
    return make_space(
        little=make_options(TX2_CPU_MHZ, range(1, 5)),
        big=make_options(TX2_CPU_MHZ, range(1, 3), off=True),
        gpu=make_options(TX2_GPU_MHZ),
        emc=make_options(TX2_EMC_MHZ),
    )


def xavier_space(*, masks: bool = True) -> ClockSpace:
    """AGX Xavier: 29 CPU clocks, which of 7 cores are on besides the first, 14 GPU clocks.

    With `masks` every set of cores counts separately, as in NeuOS: 51,968 configurations. The
    cores are identical, so only 3,248 of them differ: these remain without `masks`.
    """
    if masks:
        # The first core cannot be switched off.
        sets = [(others << 1) | 1 for others in range(1 << 7)]
        hertz = [round(mhz * 1e6) for mhz in XAVIER_CPU_MHZ]
        cpu = tuple(sorted(ClockOption(hz, m.bit_count(), m) for hz in hertz for m in sets))
    else:
        cpu = make_options(XAVIER_CPU_MHZ, range(1, 9))
    return make_space(cpu=cpu, gpu=make_options(XAVIER_GPU_MHZ))


def agx_orin_space() -> ClockSpace:
    """AGX Orin 64 GB: 29 CPU clocks x 12 cores, 11 GPU, 4 EMC: 15,312 configurations."""
    return make_space(
        cpu=make_options(AGX_ORIN_CPU_MHZ, range(1, 13)),
        gpu=make_options(AGX_ORIN_GPU_MHZ),
        emc=make_options(ORIN_EMC_MHZ),
    )


@dataclass(frozen=True, slots=True)
class PowerMode:
    """A power mode of nvpmodel: the upper limit of each domain."""

    name: str  # MAXN, MAXQ, 15W, ...
    limits: Mapping[str, ClockOption] = field(default_factory=lambda: MappingProxyType({}))
    """Limits by domain; a missing one is not limited. Frequency 0 = off."""

    def index(self, space: ClockSpace) -> int:
        """The configuration of `space` nearest to everything at this mode's limits."""
        limits = (self.limits.get(domain.name, domain.options[-1]) for domain in space.domains)
        return space.nearest(tuple(limits))


def _mode(name: str, **limits: tuple[float, int]) -> PowerMode:
    options = {
        domain: ClockOption(round(mhz * 1e6), cores) for domain, (mhz, cores) in limits.items()
    }
    return PowerMode(name, MappingProxyType(options))


@dataclass(frozen=True, slots=True)
class Board:
    """A Jetson."""

    name: str  # "tx2", "agx-xavier", ...
    title: str  # human-readable name
    models: tuple[str, ...]
    """Substrings of its model's name; the first board that matches is taken."""
    emc_mhz: tuple[float, ...]
    """Rates of the memory; the board itself reports only the lowest and the highest."""
    total_rails: tuple[str, ...]  # the rails whose sum is the whole board; empty = all
    modes: tuple[PowerMode, ...] = (PowerMode("MAXN"),)
    """As delivered; a board's own nvpmodel.conf takes precedence."""


_MAXN = PowerMode("MAXN")

# fmt: off
BOARDS = (
    Board("tx2", "Jetson TX2", ("Jetson-TX2", "Jetson TX2", "quill"), TX2_EMC_MHZ, ("VDD_IN",), (
        _MAXN,
        _mode("MAXQ", little=(1200, 4), big=(0, 0), gpu=(850, 0), emc=(1331.2, 0)),
    )),
    # Six rails, none of which includes another; together they are the board.
    Board("agx-xavier", "Jetson AGX Xavier", ("AGX Xavier", "Jetson-AGX"), XAVIER_EMC_MHZ,
          ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"), (
        _MAXN,
        _mode("10W", cpu=(1200, 2), gpu=(520, 0), emc=(1066, 0)),
        _mode("15W", cpu=(1200, 4), gpu=(670, 0), emc=(1331.2, 0)),
        _mode("30W", cpu=(1200, 8), gpu=(900, 0), emc=(1600, 0)),
    )),
    Board("xavier-nx", "Jetson Xavier NX", ("Xavier NX",), XAVIER_EMC_MHZ, ("VDD_IN",)),
    # VDDQ_VDD2_1V8AO is fed from VIN_SYS_5V0: adding it would count it twice.
    Board("agx-orin", "Jetson AGX Orin", ("AGX Orin",), ORIN_EMC_MHZ,
          ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"), (
        _MAXN,
        _mode("15W", cpu=(1113.6, 4), gpu=(408, 0), emc=(2133, 0)),
        _mode("30W", cpu=(1728, 8), gpu=(612, 0)),
        _mode("50W", cpu=(1497.6, 12), gpu=(816, 0)),
    )),
    Board("orin-nx", "Jetson Orin NX", ("Orin NX",), ORIN_EMC_MHZ, ("VDD_IN",)),
    Board("orin-nano", "Jetson Orin Nano", ("Orin Nano",), ORIN_EMC_MHZ, ("VDD_IN",), (
        _mode("15W", cpu=(1510.4, 6), gpu=(624.75, 0), emc=(2133, 0)),
        _mode("7W", cpu=(960, 4), gpu=(408, 0), emc=(2133, 0)),
    )),
)
# fmt: on

UNKNOWN_BOARD = Board("jetson", "Jetson", (), (), ("VDD_IN",))
"""A Jetson not in the list: no memory rates, a total only where it has a VDD_IN."""


def find_board(model: str) -> Board:
    """The board with this model name (``/proc/device-tree/model``)."""
    fits = (b for b in BOARDS if any(name.lower() in model.lower() for name in b.models))
    return next(fits, UNKNOWN_BOARD)


def preset_index(board: str, mode: str, space: ClockSpace) -> int:
    """The configuration of `space` nearest to a power mode of a board as delivered.

    Domains that the space lacks are ignored. ValueError: no such board, or no such mode.
    """
    boards = {each.name: each for each in BOARDS}
    if board not in boards:
        raise ValueError(f"board {board!r} is not one of {', '.join(boards)}")
    return find_mode(boards[board].modes, mode, board).index(space)


def find_mode(modes: Iterable[PowerMode], name: str, board: str) -> PowerMode:
    """The power mode of this name; ValueError when `board` has none."""
    known = {mode.name: mode for mode in modes}
    if name not in known:
        names = ", ".join(known) or "none"
        raise ValueError(f"power mode {name!r} of {board} is not one of: {names}")
    return known[name]
