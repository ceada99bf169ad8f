# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ROS 2 in a virtual environment: wheels from PyPI and the interface packages they lack.

The wheels remember the prefix they were built in (`/opt/python/cp311-cp311`); those paths are
rewritten to the environment's own, after which the interface packages under `interfaces/` build
with the environment's cmake, ninja and generators and with the system's C and C++ compiler.
Standard library only. `setup_env.py` calls this; alone it works on an existing environment::

    python3 tools/setup_ros.py --prefix .venv
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from setup_progress import Progress, SetupError, fail

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = {"kilted": "ros.txt", "jazzy": "ros-jazzy.txt"}
"""Those that PyPI has, with the file in requirements/ that names their wheels."""
DEFAULT = "kilted"
INTERFACES = ("vision_msgs", "statistics_msgs")

_BUILD_PREFIX = re.compile(r"(?:/opt/python/cp\d+-cp\d+t?)+")
_TEXT_LIMIT_BYTES = 1 << 20


class Paths(NamedTuple):
    """Paths of an environment, as reported by its own interpreter."""

    python: Path
    prefix: Path
    site_packages: Path
    include: Path
    numpy_include: Path | None

    @classmethod
    def of(cls, prefix: Path) -> Paths:
        """Ask the interpreter of the environment at `prefix`."""
        python = prefix / "bin" / "python"
        program = (
            "import json, sysconfig\n"
            "try:\n    import numpy; numpy_include = numpy.get_include()\n"
            "except ImportError:\n    numpy_include = None\n"
            "paths = sysconfig.get_paths()\n"
            "print(json.dumps([paths['purelib'], paths['include'], numpy_include]))\n"
        )
        site, include, numpy = json.loads(run_python(python, program, check=True).stdout)
        return cls(
            python, prefix, Path(site), Path(include), None if numpy is None else Path(numpy)
        )


def clean_environment() -> dict[str, str]:
    """Return the variables without those that another environment's ROS wheels set.

    The wheels' start-up hook restarts Python once with its own library path and marks that with a
    variable; inherited, the mark would leave a child of another environment without libraries.
    """
    env = dict(os.environ)
    for name in ("_ROS_WHEELS_BOOTSTRAP_COMPLETE", "PYTHONHOME", "VIRTUAL_ENV"):
        env.pop(name, None)
    folders = env.pop("LD_LIBRARY_PATH", "").split(os.pathsep)
    kept = [folder for folder in folders if folder and not _is_of_virtual_environment(folder)]
    if kept:
        env["LD_LIBRARY_PATH"] = os.pathsep.join(kept)
    return env


def run_python(
    python: str | Path, program: str, *, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter; its errors are shown only if they stop the set-up."""
    return subprocess.run(
        [os.fspath(python), "-c", program],
        check=check,
        stdout=subprocess.PIPE,
        stderr=None if check else subprocess.DEVNULL,
        text=True,
        env=clean_environment(),
    )


def _is_of_virtual_environment(folder: str) -> bool:
    return any((parent / "pyvenv.cfg").is_file() for parent in Path(folder).parents)


def rewrite_prefixes(paths: Paths) -> int:
    """Rewrite the wheels' build prefix in their cmake and index files; return how many changed."""
    site = r"/lib/python3\.\d+/site-packages"
    replacements = {
        site + "/numpy/_?core/include": paths.numpy_include
        or paths.site_packages / "numpy" / "_core" / "include",
        site: paths.site_packages,
        r"/include/python3\.\d+": paths.include,
        "": paths.prefix,
    }
    share = paths.prefix / "share"
    index = share / "ament_index" / "resource_index" / "parent_prefix_path"
    changed = 0
    for file in [*share.glob("*/cmake/*.cmake"), *index.glob("*")]:
        if file.stat().st_size > _TEXT_LIMIT_BYTES:
            continue
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
        if not _BUILD_PREFIX.search(text):
            continue
        for pattern, place in replacements.items():
            name = os.fspath(place).replace("\\", r"\\")
            text = re.sub(_BUILD_PREFIX.pattern + pattern, name, text)
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        changed += 1
    return changed


def python_include(python: Path) -> Path:
    """Return the folder that should hold the interpreter's Python.h."""
    program = "import sysconfig; print(sysconfig.get_path('include'))"
    return Path(run_python(python, program, check=True).stdout.strip())


def missing_interfaces(python: Path, env: dict[str, str]) -> list[str]:
    """Return the interface packages that `python` cannot import."""
    missing = []
    for name in INTERFACES:
        probe = [os.fspath(python), "-c", f"import {name}.msg"]
        if subprocess.run(probe, stderr=subprocess.DEVNULL, env=env).returncode != 0:
            missing.append(name)
    return missing


def check_build_tools(include: Path) -> None:
    """Raise SetupError early if a tool is missing that the set-up cannot install.

    That is a C or C++ compiler, or Python's headers if there is no apt to get them from.
    """
    if not (shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")):
        raise SetupError("no C compiler found. Fix: sudo apt install build-essential")
    if not (shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")):
        raise SetupError("no C++ compiler found. Fix: sudo apt install g++")
    if not (include / "Python.h").is_file() and not shutil.which("apt-get"):
        raise SetupError(f"Python.h not found in {include}: Python's headers are needed")


def provide_headers(paths: Paths, progress: Progress) -> Paths:
    """Unpack Python's headers into the environment if the system's Python lacks them.

    Debian and Ubuntu have them in a separate package. Unpacking it there needs no privileges and
    changes nothing outside. SetupError, with the command that installs the package, if it cannot
    be downloaded.
    """
    if (paths.include / "Python.h").is_file():
        return paths
    folder = paths.prefix / "headers"
    include = folder / "usr" / "include" / paths.include.name
    if not (include / "Python.h").is_file():
        package = f"lib{paths.include.name}-dev"
        folder.mkdir(exist_ok=True)
        fix = f"Fix: sudo apt install {package}"
        progress.run(
            f"Python's headers ({package}, not installed)",
            ["apt-get", "download", package],
            cwd=folder,
            hint=fix,
        )
        archives = sorted(folder.glob(f"{package}_*.deb"))
        if not archives:
            raise SetupError(f"{package} was not downloaded. {fix}")
        progress.run(
            "unpacking them into the environment",
            ["dpkg-deb", "-x", os.fspath(archives[-1]), os.fspath(folder)],
            hint=fix,
        )
    if not (include / "Python.h").is_file():
        raise SetupError(f"{include} has no Python.h")
    return paths._replace(include=include)


def build_interface(name: str, paths: Paths, progress: Progress) -> None:
    """Build and install one package of `interfaces/`; SetupError with the end of its output."""
    env = clean_environment()
    bin_dir = paths.prefix / "bin"
    env["PATH"] = f"{bin_dir}{os.pathsep}{env.get('PATH', '')}"
    for variable in ("AMENT_PREFIX_PATH", "CMAKE_PREFIX_PATH"):
        inherited = env.get(variable)
        env[variable] = os.fspath(paths.prefix) + (os.pathsep + inherited if inherited else "")
    if paths.prefix in paths.include.parents:
        # Debian's pyconfig.h includes another one relative to this folder.
        env["CPATH"] = os.fspath(paths.include.parent)
    build = paths.prefix / "build" / name
    shutil.rmtree(build, ignore_errors=True)
    cmake = shutil.which("cmake", path=env["PATH"])
    if cmake is None:
        raise SetupError("cmake not found. Fix: sudo apt install cmake")
    configure = [
        cmake,
        "-S",
        os.fspath(ROOT / "interfaces" / name),
        "-B",
        os.fspath(build),
        *(["-G", "Ninja"] if shutil.which("ninja", path=env["PATH"]) else []),
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_INSTALL_PREFIX={paths.prefix}",
        # The libraries must find one another without LD_LIBRARY_PATH.
        f"-DCMAKE_INSTALL_RPATH={paths.prefix / 'lib'}",
        "-DBUILD_TESTING=OFF",
        f"-DPython3_ROOT_DIR={paths.prefix}",
        f"-DPython3_EXECUTABLE={paths.python}",
        f"-DPython3_INCLUDE_DIR={paths.include}",
        # Debian's Python would choose dist-packages, where a venv does not look.
        f"-DPYTHON_INSTALL_DIR={paths.site_packages.relative_to(paths.prefix)}",
    ]
    progress.run(f"{name}: configuring", configure, env=env)
    progress.run(
        f"{name}: compiling and installing",
        [cmake, "--build", os.fspath(build), "--target", "install"],
        env=env,
    )
    shutil.rmtree(build, ignore_errors=True)
    _source_mark(name, paths.prefix).write_text(hash_sources(name), encoding="utf-8")


def hash_sources(name: str) -> str:
    """Return the SHA-256 of the sources of an interface package."""
    digest = hashlib.sha256()
    folder = ROOT / "interfaces"
    for file in (folder / "for_python.cmake", *sorted((folder / name).rglob("*"))):
        if file.is_file():
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def outdated_interfaces(prefix: Path) -> list[str]:
    """Return the packages that were built here from outdated sources."""
    outdated = []
    for name in INTERFACES:
        mark = _source_mark(name, prefix)
        if mark.parent.is_dir() and (
            not mark.is_file() or mark.read_text(encoding="utf-8") != hash_sources(name)
        ):
            outdated.append(name)
    return outdated


def _source_mark(name: str, prefix: Path) -> Path:
    return prefix / "share" / name / "built-from.sha256"


def build_missing_interfaces(
    prefix: Path, progress: Progress, names: Sequence[str] | None = None
) -> list[str]:
    """Build the interface packages that cannot be imported, and check that they can afterwards.

    Those in `names` are built in any case.
    """
    paths = Paths.of(prefix)
    env = clean_environment()
    if names is None:
        stale = {*outdated_interfaces(prefix), *missing_interfaces(paths.python, env)}
        names = [name for name in INTERFACES if name in stale]
    wanted = list(names)
    if not wanted:
        progress.say(f"{' and '.join(INTERFACES)}: up to date")
        return []
    check_build_tools(paths.include)
    paths = provide_headers(paths, progress)
    for name in wanted:
        build_interface(name, paths, progress)
    left = set(missing_interfaces(paths.python, env)).intersection(wanted)
    if left:
        raise SetupError(f"{', '.join(sorted(left))}: built, but cannot be imported")
    return wanted


def install_wheels(
    prefix: Path, progress: Progress, ros: str = DEFAULT, further: Sequence[str] = ()
) -> None:
    """Install a ROS 2 distribution from PyPI into the environment and fix the paths in its files.

    `further` are pip's arguments for packages that go with it. An environment of another
    distribution has to be made anew: ``ros-kilted-rclpy`` and ``ros-jazzy-rclpy`` both require
    wheels without a distribution in their names.
    """
    python = os.fspath(prefix / "bin" / "python")
    file = os.fspath(ROOT / "requirements" / DISTRIBUTIONS[ros])
    progress.run(
        f"ROS 2 {ros.capitalize()} from PyPI (about 280 MB)",
        [
            python,
            *("-m", "pip", "install", "--no-input", "--disable-pip-version-check"),
            *("--progress-bar=off", "-r", file, *further),
        ],
        env=clean_environment(),
        hint="Is the package index reachable from here?",
    )
    paths = provide_headers(Paths.of(prefix), progress)
    progress.say(f"paths rewritten in {rewrite_prefixes(paths)} files")


def main(arguments: Sequence[str] | None = None) -> int:
    """Install ROS 2 and the interfaces into an existing environment."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--prefix", type=Path, default=ROOT / ".venv", help="the environment")
    parser.add_argument("--ros", choices=DISTRIBUTIONS, default=DEFAULT)
    parser.add_argument("--rebuild", action="store_true", help="build the interfaces again")
    options = parser.parse_args(arguments)
    prefix = Path(os.path.abspath(options.prefix))
    progress = Progress.of(prefix)
    try:
        install_wheels(prefix, progress, options.ros)
        build_missing_interfaces(prefix, progress, INTERFACES if options.rebuild else None)
    except SetupError as error:
        return fail(error)
    progress.say(f"ready; AMENT_PREFIX_PATH={prefix}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
