"""What the package declares against what the code does: dependencies, executables, data files."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import sys
import sysconfig
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NODES = {"camera", "detector", "segmenter", "perception"}
COMMANDS = {
    *("run", "doctor", "bench", "compress", "build", "library", "simulate", "profile"),
    *("evaluate", "wcet", "compare", "report", "export", "export-c", "top"),
}

# Import name -> rosdep key, where they differ.
ROSDEP_KEYS = {
    "cv2": "python3-opencv",
    "google": "python3-protobuf",
    "jinja2": "python3-jinja2",
    "markupsafe": "python3-jinja2",  # a dependency of it
    "matplotlib": "python3-matplotlib",
    "numpy": "python3-numpy",
    "onnxruntime": "python3-onnxruntime-pip",
    "psutil": "python3-psutil",
    "rich": "python3-rich",
    "scipy": "python3-scipy",
    "torch": "python3-pytorch-pip",
    "torchvision": "python3-pytorch-pip",
    "yaml": "python3-yaml",
}
WITHOUT_KEY = {
    *("dask", "distributed", "onnx", "onnx2torch", "openvino", "pyarrow", "rosbags"),
    *("safetensors", "tensorrt", "tvm", "tvm_ffi", "xlsxwriter"),
}
# Import name -> name on PyPI, where they differ.
WHEELS = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi"}
# Other implementations of the same statistics: a benchmark compares with them where they are.
DEVELOPMENT = {"pandas", "pyextremes"}


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
        if module not in sys.stdlib_module_names | WITHOUT_KEY | DEVELOPMENT | {"jetson_dnn_rt"}
        and ROSDEP_KEYS.get(module, module) not in declared
    }
    assert not missing


def test_requirements_hold_what_rosdep_lacks():
    """What has no rosdep key must at least be installable by pip, except what comes on devices."""
    listed = "\n".join(file.read_text() for file in (ROOT / "requirements").glob("*.txt"))
    for module in WITHOUT_KEY - {"tensorrt"}:
        assert f"\n{WHEELS.get(module, module)}" in f"\n{listed}"


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


def installed_prefix():
    """The prefix the package is installed in, by colcon or by pip."""
    for prefix in [*os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep), sys.prefix]:
        if prefix and Path(prefix, "share/jetson_dnn_rt/package.xml").is_file():
            return Path(prefix)
    pytest.fail(f"jetson_dnn_rt is not installed under {sysconfig.get_path('data')}")
