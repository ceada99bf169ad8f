"""CPU domains of a machine, from what cpufreq tells."""

from __future__ import annotations

from collections.abc import Sequence

from jetson_dnn_rt.platforms.controls import CPUS, CpuControl, CpuPolicy
from jetson_dnn_rt.platforms.files import SystemFiles

_STEPS = 8
_STEP_KHZ = 100_000


def find_cpu_controls(files: SystemFiles, *, switch_cores: bool) -> list[CpuControl]:
    """One control for each kind of core: same make, same table of frequencies.

    Parameters
    ----------
    files : SystemFiles
    switch_cores : bool
        Whether cores may be switched off.

    Returns
    -------
    list of CpuControl
        One is named "cpu", two "little" and "big", more "cpu0", "cpu1", ...
    """
    kinds: dict[tuple[str, tuple[int, ...]], list[CpuPolicy]] = {}
    for path in files.glob(f"{CPUS}/cpufreq/policy[0-9]*"):
        # Cores that are on: one that the power mode has switched off is no business of ours.
        cpus = [int(word) for word in (files.read(f"{path}/affected_cpus") or "").split()]
        table = _read_table(files, path)
        if cpus and table:
            key = (_read_make(files, cpus[0]), table)
            kinds.setdefault(key, []).append(CpuPolicy(path, tuple(cpus)))

    def rank(kind: tuple[str, tuple[int, ...]]) -> tuple[bool, int, bool]:
        # The Denver cores of the TX2 have the clocks of its A57, and do more with them.
        return "denver" in kind[0], kind[1][-1], kinds[kind][0].cpus[0] != 0

    controls = []
    names = _name_domains(len(kinds))
    for name, kind in zip(names, sorted(kinds, key=rank), strict=True):
        policies = kinds[kind]
        limit = min(policy.limits.greatest_hz(files) or kind[1][-1] * 1000 for policy in policies)
        allowed = [khz * 1000 for khz in kind[1] if khz * 1000 <= limit] or [kind[1][0] * 1000]
        controls.append(CpuControl(files, name, policies, allowed, switch_cores=switch_cores))
    return controls


def _read_table(files: SystemFiles, path: str) -> tuple[int, ...]:
    """Frequencies, kHz, rising; evenly spaced ones where the driver has no table."""
    words = (files.read(f"{path}/scaling_available_frequencies") or "").split()
    if words and all(word.isdigit() for word in words):
        return tuple(sorted({int(word) for word in words}))
    least = files.read_int(f"{path}/cpuinfo_min_freq")
    greatest = files.read_int(f"{path}/cpuinfo_max_freq")
    if not least or not greatest or greatest < least:
        return ()
    steps = range(_STEPS)
    raw = [least + (greatest - least) * step / (_STEPS - 1) for step in steps]
    inner = {round(khz / _STEP_KHZ) * _STEP_KHZ for khz in raw[1:-1]}
    return tuple(sorted({least, greatest, *(khz for khz in inner if least < khz < greatest)}))


def _read_make(files: SystemFiles, cpu: int) -> str:
    for path in ("of_node/compatible", "regs/identification/midr_el1"):
        text = files.read(f"{CPUS}/cpu{cpu}/{path}")
        if text:
            return text
    return ""


def _name_domains(count: int) -> Sequence[str]:
    if count <= 1:
        return ("cpu",)[:count]
    return ("little", "big") if count == 2 else [f"cpu{number}" for number in range(count)]
