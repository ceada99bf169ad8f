# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Set-up of the package for colcon (ament_python) and for pip, from one tree."""

import os
import subprocess
import sys
from glob import glob
from importlib.util import find_spec
from pathlib import Path

from setuptools import Distribution, find_packages, setup

NAME = "jetson_dnn_rt"
ROOT = Path(__file__).resolve().parent

# `ros2 run jetson_dnn_rt NAME` starts these.
EXECUTABLES = {
    "camera": "jetson_dnn_rt.nodes.process.main:camera",
    "detector": "jetson_dnn_rt.nodes.process.main:detector",
    "segmenter": "jetson_dnn_rt.nodes.process.main:segmenter",
    "classifier": "jetson_dnn_rt.nodes.process.main:classifier",
    "perception": "jetson_dnn_rt.nodes.process.main:perception",
    "coordinator": "jetson_dnn_rt.nodes.process.main:coordinator",
    "deadlines": "jetson_dnn_rt.watch.rqt.main:deadlines",
    "plot": "jetson_dnn_rt.watch.rqt.main:plot",
    **dict.fromkeys(
        (
            *(
                "run",
                "inspect",
                "compress",
                "build",
                "profile",
                "library",
                "doctor",
                "simulate",
                "evaluate",
                "bag",
                "agree",
            ),
            *("wcet", "compare", "report", "export", "export-c", "bench", "top"),
        ),
        "jetson_dnn_rt.cli.main:run_command",
    ),
}
COMMAND = "jetson-dnn-rt"

# colcon puts scripts into lib/jetson_dnn_rt (setup.cfg), where `ros2 run` looks. pip puts them
# into bin whatever setup.cfg says. So each gets one-line wrappers in the other's place: without
# them `ros2 run` finds nothing after pip, and the shell finds no `jetson-dnn-rt` after colcon.
FOR_PIP = any(command in sys.argv for command in ("bdist_wheel", "dist_info", "editable_wheel"))


def read_requirements(name):
    """Return the requirements of requirements/NAME.txt, without its comments."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


class DistributionWithData(Distribution):
    """Distribution with the hook for data files of editable installs that setuptools lacks."""

    def has_data(self):
        return self.has_data_files()


# By its name: Python 3.12 has no distutils to import it from.
class InstallDataForPip(Distribution().get_command_class("install_data")):
    """Data files, and for `ros2 run` a wrapper of each of pip's scripts."""

    def run(self):
        super().run()
        folder = Path(self.install_dir, "lib", NAME)
        folder.mkdir(parents=True, exist_ok=True)
        for name in EXECUTABLES:
            file = folder / name
            script = f'exec "$(dirname -- "$0")/../../bin/{COMMAND}-{name}" "$@"'
            file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            file.chmod(0o755)
            self.outfiles.append(str(file))


class BuildAndCompile(Distribution().get_command_class("build_py")):
    """Modules, and what mypyc makes of some where it is there: with colcon, on most robots."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False) or find_spec("mypyc") is None:
            return
        package = Path(self.build_lib, NAME).absolute()
        command = [sys.executable, "-m", f"{NAME}.cli.compile"]
        env = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(package.parent)}
        subprocess.run(command, cwd=package.parent, env=env)  # it says why where it fails


if FOR_PIP:
    # In a bin shared with others the names include the package's.
    scripts = {f"{COMMAND}-{name}": target for name, target in EXECUTABLES.items()}
    commands = {"install_data": InstallDataForPip, "build_py": BuildAndCompile}
    wrapper = []
else:
    scripts = EXECUTABLES
    commands = {"build_py": BuildAndCompile}
    wrapper = [("bin", [f"resource/{COMMAND}"])]

setup(
    name=NAME,
    version="0.1.0",
    description="Deep neural networks on camera frames with deadlines, in ROS 2",
    license="Apache-2.0",
    author="jetson_dnn_rt authors",
    maintainer="jetson_dnn_rt maintainers",
    maintainer_email="maintainers@users.noreply.github.com",
    python_requires=">=3.10",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={
        NAME: ["py.typed"],
        f"{NAME}.demo": ["weights/*"],
        f"{NAME}.backends.cuda": ["*.cu"],
        f"{NAME}.lab.report": ["*.html", "*.css"],
        f"{NAME}.tvm.export_c": ["templates/*"],
        f"{NAME}.watch": ["page/*"],
    },
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml", "plugin.xml"]),
        (f"share/{NAME}/launch", sorted(glob("launch/*.launch.py"))),
        (f"share/{NAME}/config/security", sorted(glob("config/security/*.xml"))),
        (f"share/{NAME}/config", sorted([*glob("config/*.*"), *glob("examples/*.param.yaml")])),
        (f"share/{NAME}/config/scenarios", sorted(glob("config/scenarios/*.yaml"))),
        (f"share/{NAME}/config/scenarios/boards", sorted(glob("config/scenarios/boards/*.yaml"))),
        *wrapper,
    ],
    install_requires=["setuptools", *read_requirements("runtime")],
    extras_require={
        name: read_requirements(name)
        for name in (
            *("compiled", "opencv", "torch", "onnx", "openvino", "int8", "tvm", "plots"),
            *("bags", "traces", "wcet", "excel", "fleet", "watch", "tracking", "nvml", "test"),
        )
    },
    entry_points={
        "console_scripts": [
            f"{COMMAND} = jetson_dnn_rt.cli.main:main",
            *(f"{name} = {target}" for name, target in scripts.items()),
        ]
    },
    cmdclass=commands,
    distclass=DistributionWithData,
    zip_safe=False,
)
