# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Snapshots of the help of commands and benchmarks, executables and launch arguments.

This module depends on the package only through the imports below.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.harness import main as benchmarks
from jetson_dnn_rt.cli import main as commands

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 100

Lines = dict[str, object]


def run_command(
    arguments: Sequence[str], program: Callable[[Sequence[str]], int] = commands.main
) -> tuple[int, str]:
    """Run ``jetson-dnn-rt ARGUMENTS`` in this process; return exit code and output."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            code = program(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, shown.getvalue()


# -- help -----------------------------------------------------------------------------------------


def _help(*command: str, program: Callable[[Sequence[str]], int] = commands.main) -> str:
    with mock.patch.dict(os.environ, COLUMNS=str(COLUMNS), NO_COLOR="1", TERM="dumb"):
        code, text = run_command([*command, "--help"], program)
    if code != 0:
        raise RuntimeError(f"{' '.join(command)} --help ended with {code}")
    shared = re.escape(str(ROOT.parent / "shared"))
    return re.sub(rf"\s+{shared}(?=/)", " ../shared", text).rstrip() + "\n"


def collect_help() -> Lines:
    """Collect ``--help`` of the program and of each of its commands."""
    lines: Lines = {"jetson-dnn-rt --help": _help()}
    for name in commands.list_commands():
        lines[f"jetson-dnn-rt {name} --help"] = _help(name)
        for action in _actions(commands.build_parser(name), name):
            lines[f"jetson-dnn-rt {name} {action} --help"] = _help(name, action)
    return lines


def _actions(parser: argparse.ArgumentParser, command: str) -> list[str]:
    """Names of the subcommands of a command (`library`)."""
    found: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices[command]._actions:
                if isinstance(inner, argparse._SubParsersAction):
                    found += inner.choices
    return found


def collect_benchmark_help() -> Lines:
    """Collect ``--help`` of each benchmark, without the program's name in its usage."""
    lines: Lines = {}
    for name, summary in benchmarks.BENCHMARKS.items():
        shown = name.replace("_", "-")
        text = _help(shown, program=benchmarks.main)
        usage, _, rest = text.partition("\n\n")
        options = " ".join(usage.split()).partition(" [-h]")[2]
        lines[f"{shown} --help"] = f"usage: {shown} [-h]{options}\n\n{rest}"
        lines[f"{shown} is"] = summary
    return lines


# -- executables ----------------------------------------------------------------------------------


def collect_executables() -> Lines:
    """Collect console scripts and the executables of ``ros2 run``, by colcon and by pip."""
    lines: Lines = {}
    for builder, argument in (("colcon", "install"), ("pip", "bdist_wheel")):
        for name in _read_setup(argument):
            lines[f"{builder}: {name}"] = "is there"
    return lines


def _read_setup(argument: str) -> list[str]:
    """Names of the scripts that setup.py declares when it is called with an argument."""
    seen: dict[str, Any] = {}
    source = (ROOT / "setup.py").read_text(encoding="utf-8")
    with (
        mock.patch("setuptools.setup", lambda **given: seen.update(given)),
        mock.patch.object(sys, "argv", ["setup.py", argument]),
        mock.patch.object(Path, "write_text"),
        mock.patch.object(Path, "mkdir"),
        mock.patch.object(Path, "chmod"),
        _inside(ROOT),
    ):
        exec(compile(source, "setup.py", "exec"), {"__file__": str(ROOT / "setup.py")})
    scripts: list[str] = seen["entry_points"]["console_scripts"]
    return sorted(script.split("=")[0].strip() for script in scripts)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


# -- launch files ---------------------------------------------------------------------------------


class _Anything:
    """Stub of every class and function of the launch packages."""

    def __init__(self, *args: object, **options: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return _Anything()

    def __call__(self, *args: object, **options: object) -> Any:
        return _Anything()


LAUNCH_MODULES = (
    *("launch", "launch.actions", "launch.conditions", "launch.event_handlers", "launch.events"),
    *("launch.launch_description_sources", "launch.substitutions", "launch.utilities"),
    *("launch_ros", "launch_ros.actions", "launch_ros.substitutions", "launch_ros.ros_adapters"),
    *("launch_ros.descriptions", "launch_ros.parameter_descriptions"),
    *("ament_index_python", "ament_index_python.packages"),
)


def collect_launch_arguments() -> Lines:
    """Collect the arguments that the launch files declare; launch need not be installed."""
    lines: Lines = {}
    for file in sorted((ROOT / "launch").glob("*.launch.py")):
        for name, default, description in _declared(file):
            shown = default.replace(f"{ROOT}/", "")
            lines[f"{file.name} {name}"] = {"default": shown, "description": description}
    return lines


def _declared(file: Path) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []

    def declare(name: str, *, default_value: str, description: str, **options: object) -> Any:
        found.append((name, default_value, description))
        return _Anything()

    places: dict[str, Any] = {"DeclareLaunchArgument": declare}
    share: Callable[[str], str] = lambda package: str(ROOT)  # noqa: E731
    places["get_package_share_directory"] = share
    modules = {name: _make_module(name, places) for name in LAUNCH_MODULES}
    with _replaced(modules):
        spec = importlib.util.spec_from_file_location(f"launched_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.generate_launch_description()
    return found


@contextlib.contextmanager
def _replaced(modules: dict[str, Any]) -> Iterator[None]:
    """Replace modules, and keep what is imported meanwhile: numpy is loaded only once."""
    names = (*modules, "jetson_dnn_rt.nodes.process.launch_tools")  # it imports one of them
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)


def _make_module(name: str, places: dict[str, Any]) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__path__ = []
    module.__dict__["__getattr__"] = lambda item: places.get(item, _Anything)
    return module
