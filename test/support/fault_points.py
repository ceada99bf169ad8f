# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Exceptions and hangs at chosen call sites of the package, in chosen threads.

`install` puts a loader before Python's own: in the modules that it is given, every call ``f(x)``
in a function becomes ``point(number, f)(x)``, before which anything can happen. It has to be
called before the package is imported, which must not be compiled (`jetson_dnn_rt.compiled.PURE`).
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import os
import sys
import threading
from collections.abc import Collection, Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import BuiltinMethodType, CodeType, ModuleType
from typing import Any

from call_sites import PACKAGE, ROOT, Site, span_of

NAME = "__fault_point__"
PREFIXES = {
    "rt-worker-": "worker",
    "rt-watchdog": "watchdog",
    "rt-delivery": "delivery",
    "trace": "trace",
    "clocks": "clock",
    "clock-watch": "clock",
    "camera": "camera",
}
"""Kind of a thread by its name."""
OPEN = ("rt-worker-", "camera")  # of these only the beginning

HANG = "hang"
LONGEST_HANG_S = 15.0
"""After which it goes on: whoever would let it go may wait for what it holds."""

Key = tuple[str, int]  # kind of thread, number of the site


class Injector:
    """Makes calls raise or hang, and remembers which were reached in which kind of thread."""

    def __init__(self, sites: Iterable[Site]) -> None:
        self.sites = list(sites)
        self.numbers = {(site.module, site.span): n for n, site in enumerate(self.sites)}
        self.seen: set[Key] = set()
        self.hit, self.let_go = threading.Event(), threading.Event()
        self.texts: list[str] = []  # of what was raised since `arm`
        self._armed: Key | None = None
        self._chain: list[Key] = []
        self._faults: list[type[BaseException] | str] = []
        self._lock = threading.Lock()
        self._local = threading.local()
        self._count = 0

    def point(self, number: int, function: Any) -> Any:
        """What runs before a call; returns the function to call."""
        local = self._local
        try:
            kind = local.kind
        except AttributeError:
            name = threading.current_thread().name
            kinds = (
                kind
                for prefix, kind in PREFIXES.items()
                if name == prefix or (prefix in OPEN and name.startswith(prefix))
            )
            kind = local.kind = next(kinds, "")
        if kind:
            key = kind, number
            if key not in self.seen:
                self.seen.add(key)
            if key == self._armed:
                self._fire(key, function)
        return function

    def arm(self, chain: Iterable[Key], faults: Iterable[type[BaseException] | str]) -> None:
        """Let the first reached call of each fail, one after the other; `HANG` hangs."""
        with self._lock:
            self.hit.clear()
            self.let_go.clear()
            self.texts.clear()
            self._chain, self._faults = list(chain), list(faults)
            self._armed = self._chain.pop(0)

    def disarm(self) -> None:
        """Let nothing fail any more, and what hangs go on."""
        with self._lock:
            self._armed = None
            self._chain.clear()
            self.let_go.set()

    def _fire(self, key: Key, function: Any) -> None:
        with self._lock:
            if key != self._armed:
                return  # another thread of its kind was first
            fault = self._faults.pop(0)
            self._armed = self._chain.pop(0) if self._chain else None
            self._count += 1
            text = f"injected no. {self._count}"
            self.texts.append(text)
            last = self._armed is None
        if fault == HANG:
            self.hit.set()
            self.let_go.wait(LONGEST_HANG_S)
            return
        if last:
            self.hit.set()
        assert isinstance(fault, type)
        if isinstance(function, BuiltinMethodType) and function.__name__ == "release":
            function()  # the lock that a thread holds can always be released
        raise fault(text)


class _Instrument(ast.NodeTransformer):
    """Puts a point before every call in a function."""

    def __init__(self, module: str, injector: Injector) -> None:
        self._module, self._injector = module, injector
        self._names: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._names.append(node.name)
        # Decorators and defaults run when the module is imported.
        node.body = [self.visit(child) for child in node.body]
        self._names.pop()
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._names.append("<lambda>")
        node.body = self.visit(node.body)
        self._names.pop()
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        span, callee = span_of(node), ast.unparse(node.func)[:60]
        self.generic_visit(node)
        if not self._names:
            return node
        injector = self._injector
        number = injector.numbers.get((self._module, span))
        if number is None:
            number = injector.numbers[self._module, span] = len(injector.sites)
            site = Site(self._module, span, ".".join(self._names), callee)
            injector.sites.append(site)
        point = ast.Call(ast.Name(NAME, ast.Load()), [ast.Constant(number), node.func], [])
        ast.copy_location(point, node.func)
        node.func = point
        return node


class _Loader(importlib.abc.InspectLoader):
    def __init__(self, path: Path, module: str, injector: Injector) -> None:
        self._path, self._module, self._injector = path, module, injector

    def get_source(self, fullname: str) -> str:
        return self._path.read_text(encoding="utf-8")

    def get_code(self, fullname: str) -> CodeType:
        tree = _Instrument(self._module, self._injector).visit(ast.parse(self.get_source("")))
        return compile(ast.fix_missing_locations(tree), os.fspath(self._path), "exec")

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[NAME] = self._injector.point
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, modules: Collection[str], injector: Injector) -> None:
        self._modules, self._injector = modules, injector

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = fullname.removeprefix(f"{PACKAGE}.")
        if name not in self._modules or name == fullname:
            return None
        file = ROOT.joinpath(PACKAGE, *name.split(".")).with_suffix(".py")
        if not file.is_file():
            return None
        loader = _Loader(file, name, self._injector)
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)


def install(sites: Iterable[Site], modules: Collection[str]) -> Injector:
    """Instrument these modules when they are imported; calls that are no site are noted, too."""
    injector = Injector(sites)
    loaded = [name for name in modules if f"{PACKAGE}.{name}" in sys.modules]
    if loaded:
        raise RuntimeError(f"imported before the points were installed: {loaded}")
    sys.meta_path.insert(0, _Finder(modules, injector))
    return injector
