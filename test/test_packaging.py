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
from pathlib import Path

import pytest
from optional_packages import OPTIONAL
from record_rosdep import apt_packages

from jetson_dnn_rt.watch.rqt.main import PACKAGES as DESKTOP_PACKAGES

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
    "rich": "python3-rich",
    "scipy": "python3-scipy",
    "yaml": "python3-yaml",
}
# Import name -> name on PyPI, where they differ.
WHEELS = {"google": "onnx", "mypyc": "mypy", "tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi"}
# Other implementations of the same statistics: a benchmark compares with them where they are.
DEVELOPMENT = {"pandas", "pyextremes"}
# Plugins of rqt, which a robot without a screen does without; main.py there names the packages.
SCREEN = {*DESKTOP_PACKAGES, "python_qt_binding"}


def package_xml():
    return ElementTree.parse(ROOT / "package.xml").getroot()


def imported_modules(folder):
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((alias.name.partition(".")[0], file) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                yield node.module.partition(".")[0], file


@pytest.mark.parametrize("folder", ["jetson_dnn_rt", "launch"])
def test_package_xml_lists_every_import(folder):
    declared = {element.text for element in package_xml().iter("exec_depend")}
    missing = {
        f"{module} ({file.relative_to(ROOT)})"
        for module, file in imported_modules(ROOT / folder)
        if module
        not in sys.stdlib_module_names | OPTIONAL | DEVELOPMENT | SCREEN | {"jetson_dnn_rt"}
        and ROSDEP_KEYS.get(module, module) not in declared
    }
    assert not missing


def test_what_apt_lacks_is_an_extra():
    """Except what comes on devices."""
    extras = importlib.metadata.requires("jetson_dnn_rt")
    names = {re.match(r"[\w-]+", line)[0].lower() for line in extras if "extra ==" in line}
    assert names >= {WHEELS.get(module, module) for module in OPTIONAL - {"tensorrt"}}


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
