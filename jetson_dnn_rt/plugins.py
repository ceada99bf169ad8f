# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Finds the installed plug-ins: parts of the package that the robot does without.

The robot's modules never import `jetson_dnn_rt.lab`, `jetson_dnn_rt.tvm` or `jetson_dnn_rt.watch`.
Each of these has a module ``plugin`` with tables of what it adds, as names of modules that are
imported on use:

``COMMANDS``
    Commands of ``jetson-dnn-rt``.
``BACKENDS``
    Back ends that tune a network for minutes and keep the result in the library. Their modules
    have ``inspect(name)``, ``find_device()``, ``describe_options(precision, amp_lists)`` and
    ``open_variant(model, spec, *, threads, library, tuning)``; see `backends.registry` for the
    first two, `variants.running.engines` for the others.
``MAKERS``
    Methods of decomposition. Their modules have ``compress(model, spec, frames=, source=,
    recover_steps=, library=, threads=, progress=)``, which puts a network into the library, and
    ``check_budget(model, spec)``, which refuses what no frames make possible; that of ``int8`` has
    ``quantize(model, spec, frames=, source=, agreement=, staged=, settings=, library=, threads=,
    progress=)``, which puts a network into the library, too.
"""

from __future__ import annotations

import importlib
from functools import cache

PLUGINS = ("jetson_dnn_rt.lab", "jetson_dnn_rt.tvm", "jetson_dnn_rt.watch")


@cache
def collect(table: str) -> dict[str, str]:
    """Entries of one table (``COMMANDS``, ...) of all plug-ins: a name and a module."""
    entries: dict[str, str] = {}
    for package in PLUGINS:
        name = f"{package}.plugin"
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            # Only a plug-in that is not installed is passed over, not one that is broken.
            if error.name not in (package, name):
                raise
            continue
        entries |= getattr(module, table, {})
    return entries
