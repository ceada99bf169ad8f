# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What rqt reads of this package fits together, and a missing rqt is named with the fix."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("ament_index_python", reason="without ROS nothing finds the package")

from jetson_dnn_rt.watch.rqt import main

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = ElementTree.parse(ROOT / "plugin.xml").getroot().findall("class")


def test_package_and_setup_name_the_file_of_plugins():
    (export,) = ElementTree.parse(ROOT / "package.xml").getroot().findall("export/rqt_gui")
    assert export.attrib == {"plugin": "${prefix}/plugin.xml"}
    assert re.search(r'\(f"share/\{NAME\}", \[[^]]*"plugin.xml"', (ROOT / "setup.py").read_text())
    assert "plugin.xml" in (ROOT / "MANIFEST.in").read_text()


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.get("name"))
def test_a_plugin_is_a_class_of_its_module(plugin):
    assert plugin.get("base_class_type") == "rqt_gui_py::Plugin"
    assert plugin.findtext("qtgui/label")
    module, _, name = plugin.get("type").rpartition(".")
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize(
    ("start", "plugin"), [("deadlines", "Deadlines"), ("plot", "WaitingPlot")]
)
def test_an_executable_starts_its_plugin(start, plugin, monkeypatch):
    started = []
    monkeypatch.setattr(main, "_check", lambda *_: None)
    monkeypatch.setattr(main, "_run", lambda name, *_: started.append(name) or 0)
    if start == "plot":
        pytest.importorskip("rqt_plot.plot", reason="rqt_plot is not installed")
    assert getattr(main, start)() == 0
    assert started == [found.get("type") for found in PLUGINS if found.get("name") == plugin]
    assert f'"{start}": "jetson_dnn_rt.watch.rqt.main:{start}"' in (ROOT / "setup.py").read_text()


@pytest.mark.parametrize(
    ("start", "packages"),
    [
        (main.deadlines, "ros-<distro>-rqt-gui ros-<distro>-rqt-gui-py python3-pyqtgraph"),
        (main.plot, "ros-<distro>-rqt-gui ros-<distro>-rqt-gui-py ros-<distro>-rqt-plot"),
    ],
)
def test_a_missing_rqt_is_named_with_what_to_install(start, packages, monkeypatch):
    monkeypatch.setattr(main, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=f"fix: sudo apt install {packages}") as stopped:
        start()
    assert "foxglove_layout.json" in stopped.value.code
