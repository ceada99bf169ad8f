# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What the package declares against what the code does: dependencies, executables, data files."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import os
import re
import sys
import sysconfig
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

import pytest
from optional_packages import OPTIONAL
from record_rosdep import apt_packages

ROOT = Path(__file__).resolve().parent.parent
NODES = {"camera", "detector", "segmenter", "classifier", "perception"}
COMMANDS = {
    *("run", "doctor", "bench", "compress", "build", "library", "simulate", "profile"),
    *("evaluate", "bag", "agree", "wcet", "compare", "report", "export", "export-c", "top"),
}

# Import name -> rosdep key, where they differ.
ROSDEP_KEYS = {
    "cv2": "python3-opencv",
    "jinja2": "python3-jinja2",
    "markupsafe": "python3-jinja2",  # a dependency of it
    "matplotlib": "python3-matplotlib",
    "numpy": "python3-numpy",
    "psutil": "python3-psutil",
    "pyqtgraph": "python3-pyqtgraph",
    "rich": "python3-rich",
    "scipy": "python3-scipy",
    "yaml": "python3-yaml",
}
# Import name -> name on PyPI, where they differ.
WHEELS = {
    "backports": "backports.zstd",
    "cv2": "opencv-python-headless",
    "google": "protobuf",
    "mypyc": "mypy",
    "pynvml": "nvidia-ml-py",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "yaml": "PyYAML",
}
# Comes with a device.
DEVICE = {"tensorrt"}
IMPORTERS = {"import_module", "find_spec"}


def package_xml():
    return ElementTree.parse(ROOT / "package.xml").getroot()


def imported_modules(folder):
    """Names of what is imported, also by name at run time, with the file."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((alias.name.partition(".")[0], file) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                yield node.module.partition(".")[0], file
            elif isinstance(node, ast.Call) and name_of(node.func) in IMPORTERS:
                for text in filter(None, map(read_text, ast.walk(node))):
                    yield text.partition(".")[0], file


def name_of(function):
    """Return the last part of a function's name."""
    return getattr(function, "attr", getattr(function, "id", ""))


def read_text(node):
    """Return a constant that may be the name of a module."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return text if re.fullmatch(r"[a-z]\w*(\.\w+)*", text) else ""


@cache
def list_foreign(folder):
    """Modules that are neither of Python nor of this package, with a file that imports each."""
    own = {"jetson_dnn_rt", "compression", *sys.stdlib_module_names}  # compression: Python 3.14
    return {module: file for module, file in imported_modules(folder) if module not in own}


def read_requirements(extra):
    """Names in a file of requirements/, as PyPI compares them."""
    lines = (ROOT / "requirements" / f"{extra}.txt").read_text(encoding="utf-8").splitlines()
    names = (re.match(r"[A-Za-z][\w.-]*", line) for line in lines)
    return {normalise(name[0]) for name in names if name}


def normalise(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("folder", ["jetson_dnn_rt", "launch", "examples"])
def test_every_import_is_declared(folder):
    """By its own name: as a rosdep key, or in the requirements or an extra of the package."""
    keys = {element.text for element in package_xml().iter("exec_depend")}
    wheels = set().union(*map(read_requirements, ("runtime", *extras())))
    missing = {
        f"{module} ({file.relative_to(ROOT)})"
        for module, file in list_foreign(ROOT / folder).items()
        if module not in DEVICE
        and ROSDEP_KEYS.get(module, module) not in keys
        and normalise(WHEELS.get(module, module)) not in wheels
    }
    assert not missing


def test_imports_by_name_are_seen(tmp_path):
    """Guards the guard."""
    (tmp_path / "a.py").write_text(
        "from importlib import import_module\n"
        "import importlib.util\n"
        "import_module('one.two' if True else 'three')\n"
        "importlib.util.find_spec('four')\n"
    )
    assert {"one", "three", "four"} <= list_foreign(tmp_path).keys()


def test_what_pip_installs_is_declared_for_pip():
    """What is on PyPI is in the requirements even where apt has it, too."""
    wheels = set().union(*map(read_requirements, ("runtime", "opencv", *extras())))
    on_pypi = {*OPTIONAL, *ROSDEP_KEYS} & list_foreign(ROOT / "jetson_dnn_rt").keys()
    names = {normalise(WHEELS.get(module, module)) for module in on_pypi - DEVICE - SCREEN}
    assert names <= wheels


def extras():
    """Extras of the package, as it is installed."""
    lines = importlib.metadata.requires("jetson_dnn_rt") or ()
    return {found[1] for line in lines if (found := re.search(r"extra == .(\w+)", line))}


# Of apt alone.
SCREEN = {"pyqtgraph"}


def test_what_apt_lacks_is_an_extra():
    """Except what comes on devices."""
    lines = importlib.metadata.requires("jetson_dnn_rt")
    names = {normalise(re.match(r"[\w.-]+", line)[0]) for line in lines if "extra ==" in line}
    assert names >= {normalise(WHEELS.get(module, module)) for module in OPTIONAL - DEVICE}


def test_a_robot_without_a_screen_installs_no_window():
    """Keys that a variable asks for: rosdep compares it, bloom leaves them out."""
    names = {"foxglove_msgs", "python_qt_binding", "python3-pyqtgraph"}
    for element in package_xml().iter("exec_depend"):
        asked = element.get("condition") == "$JETSON_DNN_RT_SCREEN == 1"
        assert asked == (element.text in names or element.text.startswith("rqt_")), element.text


@pytest.mark.parametrize("distro", ["humble", "jazzy", "kilted", "lyrical"])
def test_apt_has_every_key(distro):
    """A release is refused for keys that rosdep lacks, or that pip would install."""
    elements = package_xml()
    keys = {element.text for element in elements if element.tag.endswith("depend")}
    recorded = json.loads((ROOT / "test/rosdep_keys.json").read_text(encoding="utf-8"))[distro]
    assert keys == recorded.keys(), "run: python tools/record_rosdep.py (its help says how)"
    assert all(recorded.values())


def test_keys_resolve_as_rosdep_does():
    rules = {
        "list": {"ubuntu": ["python3-a", "python3-b"]},
        "by_release": {"ubuntu": {"*": ["python3-c"], "jammy": None}},
        "by_installer": {"ubuntu": {"apt": {"packages": ["python3-d"]}}},
        "pip": {"ubuntu": {"pip": {"packages": ["e"]}}},
        "pip_on_jammy": {"ubuntu": {"jammy": {"pip": {"packages": ["f"]}}, "noble": "python3-f"}},
    }
    assert apt_packages(rules, "list", "jammy") == ["python3-a", "python3-b"]
    assert apt_packages(rules, "by_release", "noble") == ["python3-c"]
    assert apt_packages(rules, "by_installer", "noble") == ["python3-d"]
    assert apt_packages(rules, "pip_on_jammy", "noble") == ["python3-f"]
    for key in ("by_release", "pip", "pip_on_jammy", "unknown"):
        with pytest.raises(ValueError, match=f"no apt package of {key} for Ubuntu jammy"):
            apt_packages(rules, key, "jammy")


@pytest.mark.filterwarnings("ignore:nodes.Node.traverse:DeprecationWarning")  # catkin_pkg's
def test_changelog_becomes_a_release():
    """As catkin_prepare_release does it: from Forthcoming to a version with a date."""
    changelog = pytest.importorskip("catkin_pkg.changelog")
    version = importlib.import_module("catkin_pkg.package_version")
    text = (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")
    label = version.get_forthcoming_label(text)
    released = changelog.Changelog("jetson_dnn_rt")
    changelog.populate_changelog_from_rst(
        released, version.rename_section(text, label, "0.1.0 (2026-01-01)")
    )
    (bullets,) = released.get_content_of_version("0.1.0")
    assert len(bullets.bullets) == text.count("\n* ")


def test_one_version_everywhere():
    import jetson_dnn_rt

    version = package_xml().findtext("version")
    assert importlib.metadata.version("jetson_dnn_rt") == version
    assert jetson_dnn_rt.__version__ == version


def test_every_executable_leads_to_a_function():
    entries = importlib.metadata.distribution("jetson_dnn_rt").entry_points
    scripts = {entry.name: entry for entry in entries if entry.group == "console_scripts"}
    assert "jetson-dnn-rt" in scripts
    plain = {name.removeprefix("jetson-dnn-rt-") for name in scripts}
    assert plain >= NODES | COMMANDS
    for entry in scripts.values():
        if ".nodes." in entry.value:
            pytest.importorskip("rclpy", reason="the nodes need ROS")
        assert callable(entry.load())


def test_ros2_run_finds_the_executables():
    """`ros2 run` starts every executable file in lib/<package>."""
    folder = installed_prefix() / "lib" / "jetson_dnn_rt"
    names = {file.name for file in folder.iterdir() if os.access(file, os.X_OK)}
    assert names >= NODES | COMMANDS
    for name in NODES | COMMANDS:
        text = (folder / name).read_text(encoding="utf-8")
        if "../../bin/" in text:
            assert (installed_prefix() / "bin" / f"jetson-dnn-rt-{name}").is_file()


def test_ament_index_knows_the_package():
    share = installed_prefix() / "share"
    assert (share / "ament_index/resource_index/packages/jetson_dnn_rt").is_file()
    assert (share / "jetson_dnn_rt/package.xml").is_file()
    assert (share / "jetson_dnn_rt/config/fastdds_profile.xml").is_file()
    for file in (ROOT / "config/scenarios").rglob("*.yaml"):
        assert (share / "jetson_dnn_rt" / file.relative_to(ROOT)).is_file()
    for file in (ROOT / "launch").glob("*.launch.py"):
        assert (share / "jetson_dnn_rt/launch" / file.name).is_file()
    for file in (ROOT / "examples").glob("*.param.yaml"):
        assert (share / "jetson_dnn_rt/config" / file.name).is_file()


def installed_prefix():
    """The prefix the package is installed in, by colcon or by pip."""
    for prefix in [*os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep), sys.prefix]:
        if prefix and Path(prefix, "share/jetson_dnn_rt/package.xml").is_file():
            return Path(prefix)
    pytest.fail(f"jetson_dnn_rt is not installed under {sysconfig.get_path('data')}")
