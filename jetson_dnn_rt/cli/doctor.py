# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Report what is installed, granted and set, and how to fix what is not.

Exit code 0 when `jetson-dnn-rt run` has what it needs, else 1. With ``--tensorrt`` a small network
is built by TensorRT, compared and timed instead; exit code 0 when it works, else 1.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform as this_machine
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jetson_dnn_rt import __version__
from jetson_dnn_rt.backends.base import BackendInfo
from jetson_dnn_rt.backends.cuda import nvrtc
from jetson_dnn_rt.backends.cuda import owners as cuda
from jetson_dnn_rt.backends.cuda.device import choose_memory
from jetson_dnn_rt.backends.cuda.driver import CudaDriver
from jetson_dnn_rt.backends.cuda.input import load_kernel
from jetson_dnn_rt.backends.registry import list_backends
from jetson_dnn_rt.backends.tensorrt import api as tensorrt_api
from jetson_dnn_rt.backends.threads import count_cores
from jetson_dnn_rt.cli.environment import (
    PROFILE,
    find_distribution,
    find_profile,
    prepare_environment,
    profile_variable,
)
from jetson_dnn_rt.compiled import FIX, find_build
from jetson_dnn_rt.errors import BackendUnavailableError, JetsonDnnRtError, PlatformError
from jetson_dnn_rt.platforms.clocks import format_clocks
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.load import FULL, compare, parse_pressure, read_cpu
from jetson_dnn_rt.platforms.shared_memory import find_deaf_processes
from jetson_dnn_rt.runtime.sharing.core_split import share_cores
from jetson_dnn_rt.safety.children import code_command, python_command

HELP = "report what is installed, granted and set, and how to fix what is not"
ROOT = Path("/")
TORCH_EXTRA = ("torch", "torchvision", "onnx", "onnx2torch", "safetensors")
SHARED_MEMORY_BYTES = 128 << 20
"""One segment of 32 MiB for each ROS process: a camera, this one, a recorder, a viewer."""

# Variables that torch's threads read at their start: harmless values, and the effect of others.
_OPENMP = {
    "OMP_WAIT_POLICY": (("passive",), "lets torch's threads spin on cores that others need"),
    "OMP_PROC_BIND": (("false",), "binds the threads of all workers to the same first cores"),
    "GOMP_CPU_AFFINITY": ((), "binds the threads of all workers to the same first cores"),
}

# L4T release to JetPack, by the first two numbers of the release.
_JETPACKS = {"35": "5.1", "36.3": "6.0", "36.4": "6.1 or 6.2", "36": "6", "38": "7"}

_RIGHTS_PROBE = """
import ctypes, json, os
def attempt(call):
    try:
        call()
    except OSError as error:
        return error.strerror
    return ""
def lock():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(3) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
fifo = attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(51)))
print(json.dumps({"sched_fifo": fifo, "mlockall": attempt(lock)}))
"""

UDP_BYTES = 2_000_000
"""Two colour pictures of 640x480. Fast DDS takes the kernel's default size."""

DISCOVERY_S = 2.0
"""Time for which other nodes are discovered."""

_SINGLE_TYPES = (
    *("vision_msgs/msg/Detection2DArray", "vision_msgs/msg/Classification"),
    *("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"),
)
"""Of topics that should have one publisher."""

_RIGHTS_FIXES = {
    "sched_fifo": "'@GROUP - rtprio 90' in /etc/security/limits.d/realtime.conf and log in "
    "again; docker: --cap-add SYS_NICE",
    "mlockall": "'@GROUP - memlock unlimited' in /etc/security/limits.d/realtime.conf and log "
    "in again; docker: --ulimit memlock=-1",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--tensorrt", action="store_true", help="try TensorRT, and say what it lacks"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Run every check and print what it found."""
    checks = check_tensorrt() if args.tensorrt else run_checks()
    missing = ", ".join(check.name for check in checks if check.required and not check.ok)
    if args.json:
        keys = ("ok", "required", "detail", "fix")
        found = {check.name: {key: getattr(check, key) for key in keys} for check in checks}
        result = {"version": __version__, "machine": this_machine.platform(), "ok": not missing}
        print(json.dumps({**result, "checks": found}))
    else:
        print(format_checks(checks))
        if args.tensorrt:
            bad, good = f"TensorRT does not work here: {missing}", "TensorRT works here."
        else:
            bad, good = f"`run` lacks: {missing}", "`run` has what it needs."
        print(f"\n{bad if missing else good}")
    return 1 if missing else 0


def run_checks() -> list[Check]:
    """Every check, in the order in which they are shown."""
    # The profile as the user's shell has it, before this process sets what is missing.
    profile = check_profile(os.environ)
    prepare_environment()
    return [
        check_python(),
        check_ros(),
        *check_interfaces(),
        check_launch(),
        check_module("cv2", "pip install opencv-python-headless", required=True),
        check_module("matplotlib", "pip install matplotlib", required=False),
        check_scheduling(),
        *check_backends(list_backends()),
        check_torch_extra(),
        check_module("trackforge", "pip install 'trackforge>=0.4,<0.5'", required=False),
        check_gpu(),
        *check_memory(),
        check_jetson(),
        *check_rights(),
        check_threads(os.environ),
        check_governor(),
        check_load(),
        *check_platform(),
        profile,
        check_shared_memory(),
        check_udp_buffers(),
        check_ports(),
        check_graph(),
    ]


def format_checks(checks: Sequence[Check]) -> str:
    """A line for each check, with its fix below."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        mark = "ok  " if check.ok else "LACK" if check.required else "-   "
        lines.append(f"{mark}  {check.name.ljust(width)}  {check.detail}")
        if check.fix:
            lines.append(f"      {' ' * width}  -> {check.fix}")
    return "\n".join(lines)


# -- the checks: each inspects one thing and changes nothing -----------------------------------
#
# Those that read the system take its root folder: tests pass a made-up tree.


@dataclass(frozen=True, slots=True)
class Check:
    """One item, whether it is present and as it should be, and what was found."""

    name: str
    ok: bool
    detail: str  # version, place, figure, or what is wrong
    fix: str = ""  # in one line; empty where nothing is to be done
    required: bool = False  # by ``jetson-dnn-rt run``

    def __post_init__(self) -> None:
        if self.ok:
            object.__setattr__(self, "fix", "")


def check_python() -> Check:
    """Python 3.10 or later."""
    version, ok = ".".join(map(str, sys.version_info[:3])), sys.version_info >= (3, 10)
    return Check("python", ok, version, "use Python 3.10 or later", required=True)


def check_ros() -> Check:
    """rclpy, its distribution and its middleware."""
    name, place = find_distribution()
    try:
        rclpy = importlib.import_module("rclpy")
        middleware = str(rclpy.get_rmw_implementation_identifier())
    except Exception as error:  # a half-sourced installation raises more than ImportError
        fix = "source /opt/ros/DISTRO/setup.bash, or run `make demo`, which installs it from PyPI"
        return Check("ros", False, f"rclpy cannot be used: {error}", fix, required=True)
    detail = f"{name or 'unknown distribution'} ({place or rclpy.__path__[0]}), {middleware}"
    return Check("ros", True, detail, required=True)


def check_module(name: str, fix: str, *, required: bool) -> Check:
    """A Python module that can be imported, and its version where it has one."""
    try:
        module = importlib.import_module(name)
    except Exception as error:
        return Check(name, False, f"cannot be imported: {error}", fix, required)
    return Check(name, True, str(getattr(module, "__version__", "present")), required=required)


def check_threads(environment: Mapping[str, str], cores: int = 0) -> Check:
    """How the cores are shared, and OpenMP settings that share them badly.

    `cores` = 0 stands for those that this process may run on.
    """
    cores = cores or count_cores()
    harmful = [
        f"{name}={environment[name]} {what}"
        for name, (fine, what) in _OPENMP.items()
        if name in environment and environment[name].lower() not in fine
    ]
    if harmful:
        fix = "unset " + " ".join(text.partition("=")[0] for text in harmful)
        return Check("threads", False, "; ".join(harmful), fix)
    detail = (
        f"{cores} core(s): 1 x {cores} (workers x threads) by default; with a task for each core "
        f"threads: auto is {share_cores(cores, cores)}, as measured at the first start"
    )
    return Check("threads", True, detail)


def check_interfaces() -> list[Check]:
    """The message packages that some installations lack."""
    distribution = find_distribution()[0] or "DISTRO"
    return [
        check_module(
            f"{package}.msg",
            f"apt install ros-{distribution}-{package.replace('_', '-')}; "
            "with ROS 2 from PyPI `make demo` builds it",
            required=True,
        )
        for package in ("vision_msgs", "statistics_msgs")
    ]


def check_launch() -> Check:
    """The launch system, for the launch file; `run` does not need it."""
    missing = ", ".join(name for name in ("launch", "launch_ros") if not _is_installed(name))
    fix = (
        f"apt install ros-{find_distribution()[0] or 'DISTRO'}-ros2launch; "
        "`jetson-dnn-rt run` starts the same graph without it"
    )
    return Check("launch", not missing, f"missing: {missing}" if missing else "present", fix)


def _is_installed(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    # A folder `launch` in the working directory is a namespace package, which has no origin.
    return spec is not None and spec.origin is not None


def check_backends(infos: Iterable[BackendInfo]) -> list[Check]:
    """Every back end, and that at least one of them runs networks."""
    checks, working = [], []
    for info in infos:
        detail = info.reason
        if info.available:
            note = f" ({info.reason})" if info.reason else ""
            detail = f"{info.version}: {', '.join(info.precisions)}{note}"
            detail += "; runs can be cancelled" if info.cancels else ""
            working += [info.name] if info.name != "null" else []
        checks.append(Check(f"backend {info.name}", info.available, detail, info.fix))
    fix = "pip install openvino (x86-64), onnxruntime or torch"
    found = ", ".join(working) or "none"
    return [*checks, Check("a back end for networks", bool(working), found, fix, required=True)]


def check_scheduling() -> Check:
    """Whether the scheduling runs compiled."""
    build = find_build()
    detail = "compiled with mypyc" if build.used else f"Python, correct but slower: {build.reason}"
    return Check("scheduling", build.used, detail, FIX)


def check_torch_extra() -> Check:
    """The packages of the extra ``torch``, which the default variants on a CPU do without."""
    missing = [name for name in TORCH_EXTRA if not _is_installed(name)]
    uses = "variants on torch, stages, decomposed networks"
    detail = f"{uses}: missing {', '.join(missing)}" if missing else f"{uses}: present"
    wheel = " (torch on a Jetson: NVIDIA's wheel for its JetPack)" if "torch" in missing else ""
    return Check("extra torch", not missing, detail, f"pip install {' '.join(missing)}{wheel}")


def check_gpu(root: Path = ROOT) -> Check:
    """A CUDA device that torch can use."""
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        torch = None
    except Exception as error:
        return Check("gpu", False, f"torch cannot be imported: {error}", "install torch again")
    if torch is not None and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        detail = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, "
        return Check("gpu", True, detail + f"CUDA {torch.version.cuda}")
    dev = root / "dev"
    devices = sorted(dev.glob("nvidia[0-9]*")) or sorted(dev.glob("nvhost-*gpu"))
    if devices:
        fix = "install a torch built for this driver (on a Jetson: NVIDIA's wheel for its JetPack)"
        return Check("gpu", False, f"{devices[0].name} is there, torch cannot use it", fix)
    return Check("gpu", False, "none: networks run on the CPU")


def check_memory() -> list[Check]:
    """The memory that ``memory: auto`` chooses, and whether the input pass runs on the device.

    Empty without a CUDA device, which the check of the GPU reports.
    """
    try:
        properties = CudaDriver().properties()
    except BackendUnavailableError:
        return []
    kind = choose_memory("auto", properties)
    sort = "integrated" if properties.integrated else "discrete"
    version = ".".join(map(str, properties.capability))
    detail = f"auto is {kind}: the GPU is {sort}, of compute capability {version}"
    checks = [Check("memory", True, detail)]
    if kind == "pageable":
        return checks
    try:
        load_kernel()
    except BackendUnavailableError as error:
        reason = f"the CPU converts the frames: {error}".removesuffix(f": {nvrtc.FIX}")
        return [*checks, Check("frames", False, reason, nvrtc.FIX)]
    converted = "converted on the GPU, those of cameras in the process"
    return [*checks, Check("frames", True, converted)]


def check_jetson(root: Path = ROOT) -> Check:
    """Model and JetPack of a Jetson."""
    files = SystemFiles(root)
    model = files.read("proc/device-tree/model") or ""
    release = files.read("etc/nv_tegra_release") or ""
    if not release and "nvidia" not in model.lower():
        return Check("jetson", False, "not a Jetson")
    found = re.search(r"R(\d+).*?REVISION:\s*(\d+)\.(\d+)", release)
    if found is None:
        fix = "look into /etc/nv_tegra_release"
        return Check("jetson", False, f"{model or 'Jetson'}, unknown L4T release", fix)
    major, minor, patch = found.groups()
    jetpack = _JETPACKS.get(f"{major}.{minor}") or _JETPACKS.get(major, "unknown")
    detail = f"{model or 'Jetson'}, JetPack {jetpack} (L4T {major}.{minor}.{patch})"
    return Check("jetson", True, detail)


def check_rights(probe: Mapping[str, str] | None = None) -> list[Check]:
    """SCHED_FIFO and mlockall, by trying them in a process of their own.

    `probe` has the error of each, empty = granted; tried when not given.
    """
    if probe is None:
        done = subprocess.run(
            code_command(_RIGHTS_PROBE), capture_output=True, text=True, timeout=30
        )
        # A limit on memory can end the probe itself.
        refused = done.stderr.strip().splitlines()[-1:] or ["refused"]
        both = {"sched_fifo": refused[0], "mlockall": refused[0]}
        probe = json.loads(done.stdout) if done.returncode == 0 else both
    return [
        Check(name, not why, why or "granted", _RIGHTS_FIXES[name]) for name, why in probe.items()
    ]


def check_governor(root: Path = ROOT) -> Check:
    """Frequency governors of the cores."""
    files = SystemFiles(root)
    paths = files.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    governors = sorted({files.read(path) or "unreadable" for path in paths})
    if not governors:
        text = "unknown: no cpufreq is visible (virtual machine or container?)"
        return Check("cpu governor", False, text)
    if governors == ["performance"]:
        return Check("cpu governor", True, "performance")
    jetson = files.exists("etc/nv_tegra_release")
    fix = "sudo jetson_clocks" if jetson else "sudo cpupower frequency-set -g performance"
    return Check("cpu governor", False, f"{', '.join(governors)}: execution times vary", fix)


def check_load(seconds: float = 0.5, root: Path = ROOT) -> Check:
    """What programs that run now, tasks of this package among them, have of the cores."""
    before = read_cpu(root)
    time.sleep(seconds)
    load = compare(before, read_cpu(root))
    if load is None or load.others is None:
        return Check("load", False, "unknown: /proc/stat cannot be read")
    detail = str(load).partition(", this process")[0]
    pressure = parse_pressure(SystemFiles(root).read("proc/pressure/cpu") or "")
    if pressure is not None:
        detail += f"; in the last 10 s a program waited for a core {pressure:.0f} % of the time"
    fix = (
        "where that is not the graph itself: end them, or keep cores for the graph "
        "(realtime.cpu_affinity, and other cores for the rest: taskset, cpuset, isolcpus)"
    )
    return Check("load", load.others < FULL * load.cores, detail, fix)


def check_platform(root: Path = ROOT) -> list[Check]:
    """Clocks and power: what can be read, and whether clocks could be set. Nothing is written."""
    with detect(root) as platform:
        checks = [
            Check("platform", platform.name != "unknown", f"{platform.title} ({platform.name})")
        ]
        names, count = platform.space.names, len(platform.space)
        try:
            now = format_clocks(names, platform.read())
            unknown = f"unknown: {platform.reason}"
            detail = f"{now}; {count:,} configurations" if names else unknown
            checks.append(Check("clocks", bool(names), detail))
        except PlatformError as error:
            checks.append(Check("clocks", False, str(error)))
        power = platform.power()
        if power.total_w is not None:
            rails = ", ".join(f"{name} {watts:.2f} W" for name, watts in power.rails.items())
            checks.append(Check("power", True, f"{power.total_w:.2f} W ({rails})"))
        elif platform.energy_j() is not None:
            checks.append(Check("power", True, "from energy counters"))
        else:
            notes = [note for note in platform.notes if note.startswith("power")]
            detail, _, fix = (notes[0] if notes else "nothing measures it").partition("; ")
            checks.append(Check("power", False, detail.removeprefix("power: "), fix))
        reason, _, fix = platform.reason.partition("; ")
        detail = "granted" if platform.permitted else reason
        return [*checks, Check("set clocks", platform.permitted, detail, fix)]


def check_profile(environ: Mapping[str, str]) -> Check:
    """The Fast DDS profile, without which images between processes are lost."""
    if not environ.get("RMW_IMPLEMENTATION", "rmw_fastrtps").startswith("rmw_fastrtps"):
        return Check("dds profile", True, f"not for {environ['RMW_IMPLEMENTATION']}")
    variable, shipped = profile_variable(), find_profile(environ)
    active = environ.get(variable, "")
    if active and Path(active).is_file():
        ours = shipped is not None and Path(active).parent.samefile(shipped.parent)
        note = "" if ours else " (not the one of this package)"
        return Check("dds profile", True, active + note)
    if active:
        detail, fix = f"{variable}={active}: no such file", "correct the path"
    elif shipped is None:
        detail = f"{PROFILE} of this package is not installed"
        fix = "install the package again"
    else:
        detail = "not set in this shell; run sets it itself"
        fix = (
            f"export {variable}={shipped} for every process that sends or receives images; its "
            "comments say what pictures larger than 1920x1080 need"
        )
    return Check("dds profile", False, detail, fix)


def check_shared_memory(root: Path = ROOT) -> Check:
    """Room for Fast DDS's shared-memory segments."""
    try:
        status = os.statvfs(root / "dev/shm")
    except OSError as error:
        fix = "mount a tmpfs on /dev/shm"
        return Check("shared memory", False, f"/dev/shm: {error.strerror}", fix)
    free = status.f_bavail * status.f_frsize
    fix = (
        f"remove old segments (/dev/shm/fastrtps_*), or give it {SHARED_MEMORY_BYTES >> 20} MiB "
        "(docker: --shm-size 512m)"
    )
    detail = f"{free / 2**20:.0f} MiB free in /dev/shm"
    return Check("shared memory", free >= SHARED_MEMORY_BYTES, detail, fix)


def check_udp_buffers(root: Path = ROOT) -> Check:
    """Room in the kernel for the pieces of an image that comes from another machine."""
    text = SystemFiles(root).read("proc/sys/net/core/rmem_default") or ""
    if not text.isdigit():
        return Check("udp buffers", True, "not known")
    fix = f"sudo sysctl -w net.core.rmem_max={UDP_BYTES} net.core.rmem_default={UDP_BYTES}"
    detail = f"{int(text) / 1000:.0f} kB for what comes from other machines or containers"
    return Check("udp buffers", int(text) >= UDP_BYTES, detail, fix)


def check_ports(root: Path = ROOT) -> Check:
    """Whether Fast DDS has lost the memory in which a running process receives."""
    deaf = find_deaf_processes(root)
    if not deaf:
        return Check("dds ports", True, "no process has lost the memory in which it receives")
    places = "; ".join(f"process {pid}: {', '.join(ports)}" for pid, ports in deaf.items())
    fix = "end these processes by SIGINT, and start them again"
    return Check("dds ports", False, f"lost, so nothing on this machine reaches {places}", fix)


def check_graph(graph: Mapping[str, Any] | None = None) -> Check:
    """Nodes of one name, and topics of images or results with several publishers.

    `graph` has the names of all nodes, and by topic those of its publishers; it is looked at, in a
    process of its own, when not given.
    """
    if graph is None:
        module = "jetson_dnn_rt.nodes.reports.graph_probe"
        command = python_command(module, str(DISCOVERY_S), *_SINGLE_TYPES)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            graph = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.TimeoutExpired, IndexError, ValueError):
            return Check("ros graph", False, "cannot be looked at", "see the check of ros above")
    counts = Counter(
        name for name in graph["nodes"] if not name.rpartition("/")[2].startswith("_")
    )
    found = [f"{count} nodes are called {name}" for name, count in counts.items() if count > 1]
    found += [
        f"{topic} has {len(nodes)} publishers ({', '.join(sorted(nodes))})"
        for topic, nodes in sorted(graph["topics"].items())
        if len(nodes) > 1
    ]
    if not found:
        return Check("ros graph", True, f"{len(counts)} nodes, no name or image topic twice")
    fix = "end one of the two, or give it another namespace or ROS_DOMAIN_ID (20 s after a crash)"
    return Check("ros graph", False, "; ".join(found), fix)


def check_tensorrt() -> list[Check]:
    """TensorRT's requirements; where all are met, a network built and run in two ways."""
    try:
        module = tensorrt_api.import_tensorrt()
        typed = "strongly typed" if tensorrt_api.is_strongly_typed(module) else "BuilderFlag.FP16"
        library = Check("tensorrt", True, f"{module.__version__} ({typed})", required=True)
    except BackendUnavailableError as error:
        library = _lacks("tensorrt", error, tensorrt_api.FIX)
    try:
        with_cuda = cuda.open_cuda()
        detail = f"memory and stream by {with_cuda.owner}"
        with_cuda.close()
        device = Check("cuda device", True, detail, required=True)
    except BackendUnavailableError as error:
        device = _lacks("cuda device", error, cuda.FIX)
    needs = [library, device, check_module("onnx", "pip install onnx", required=True)]
    checks = [*needs, check_gpu(), check_jetson()]
    missing = ", ".join(check.name for check in needs if not check.ok)
    if missing:
        return [*checks, Check("trial", False, f"not run, missing: {missing}", required=True)]
    return [*checks, *map(_check_trial, ("fp32", "fp16"))]


def _lacks(name: str, error: Exception, fix: str) -> Check:
    # Without a GPU nothing is to be installed.
    fix = "" if str(error) == tensorrt_api.NO_GPU else fix
    return Check(name, False, str(error).removesuffix(f"; {fix}"), fix, required=True)


def _check_trial(precision: str) -> Check:
    from jetson_dnn_rt.backends.tensorrt.trial import TOLERANCE, try_tensorrt

    name = f"trial {precision}"
    try:
        trial = try_tensorrt(precision)
    except JetsonDnnRtError as error:
        return Check(name, False, str(error), "fix what TensorRT complains of", required=True)
    graph = "CUDA graph" if trial.cuda_graph else "no CUDA graph"
    detail = (
        f"p50 {trial.p50_ms:.3f} ms, p99 {trial.p99_ms:.3f} ms ({graph}), built in "
        f"{trial.build_ms / 1e3:.1f} s, {trial.engine_bytes / 2**20:.1f} MiB, off by "
        f"{trial.error:.1e} from the reference, allowed is {TOLERANCE[trial.precision]:.0e}"
    )
    fix = "do not use it: report this line, with GPU, driver and version"
    return Check(f"trial {trial.precision}", trial.ok, detail, fix, required=True)
