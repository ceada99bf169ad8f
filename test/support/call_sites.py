# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""All call sites in the functions that the package's threads run, found in its sources.

From the functions that a thread begins with, every function is followed that it may call. A call
is resolved by name: functions and classes of the module and of its imports, methods by the class
of what they are called on. Classes are inferred from annotations, from assignments of constructor
calls and from loops; a container counts as what is in it, a protocol as every class that has its
methods, and a method also as those of the subclasses. Where the class is unknown, any class of the
module that has the method counts. A method or property that is only mentioned, ``x[...]`` and
``with`` count as called.

Its limits: callables that are stored (observers, stages, listeners) are not followed, `ROOTS`
names those that matter. Operators and iteration are no call sites. Too much is found where one
name stands for several classes: what a thread never reaches says so.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "jetson_dnn_rt"
FOLDERS = (
    "runtime",
    "traces",
    "platforms",
    "cameras",
    "nodes",
    "coordinator",
    "scheduling",
    "safety",
)
"""Where calls are followed to; the modules directly in the package, too."""
LEFT_OUT = (
    "clock:VirtualClock.",  # for tests and the simulator
    "clock:_VirtualCondition.",
    # A selector is stored, too: all of it fails inside one call of `GuardedSelector`.
    "coordinator.coordinator:",
    "coordinator.policies.",
    "nodes.coordinator.",
)
"""Functions that are not followed, by the beginnings of their keys."""
SEARCHED = ("runtime", "traces", "platforms", "cameras", "nodes", "coordinator")
"""Where threads are started."""
STARTERS = frozenset(("start_thread", "_spawn", "Thread"))

ROOTS: dict[str, tuple[str, ...]] = {
    "worker": (
        "runtime.executor:Executor._work",
        "runtime.supervision:Supervisor.start_worker.<lambda>",
        "scheduling.selection:GuardedSelector._guard.guarded",
        "errors:JetsonDnnRtError.__init__",  # raised by stages
    ),
    "watchdog": ("runtime.supervision:Supervisor._watch",),
    "delivery": ("runtime.delivery:Delivery._deliver", "runtime.job_trace:JobTrace.observe"),
    "trace": (
        "traces.writer:TraceWriter._run",
        "traces.writer:_Removed.add",
        "traces.clock_log:ClockLog.at",
        *(f"tasks:JobRecord.{name}" for name in ("batch", "narrow")),  # by `attrgetter`
    ),
    "clock": (
        "coordinator.clock_thread:ClockThread._run",
        "coordinator.clock_thread:ClockWatch._run",
    ),
    "camera": (
        "cameras.camera:Camera._run",
        "cameras.camera:Camera._goes_on",
        # Given to it as callables by the node, as the node's are by the process.
        "nodes.cameras.camera:CameraNode._open",
        "nodes.cameras.camera:CameraNode._deliver",
        "nodes.cameras.camera:CameraNode._enter_thread",
        "nodes.cameras.camera:CameraNode._end_stream",
        "nodes.cameras.camera:CameraNode._stamp_ns",
        "nodes.cameras.camera:CameraNode.__init__.<lambda>",
        "nodes.cameras.camera:CameraNode._publish",
        "nodes.tasks.mailbox:Mailbox._run",
        "nodes.tasks.image_input:Fanout.__len__",
        "frames:allocate_pageable",
        "scheduling.selection:GuardedSelector._guard.guarded",
        "runtime.executor:Executor.submit",
        "runtime.executor:Executor.reject",
    ),
}  # fmt: skip
"""What each kind of thread begins with, and the callables that it is given."""
EVERY_THREAD = (
    *(f"safety.faults:start_thread.{name}" for name in ("run_guarded", "guarded", "run_once")),
    "safety.faults:note_destructors.note",
    "frames:Loan.__del__",
)

THREAD_STARTS: dict[str, str] = {
    "runtime.supervision:Supervisor.start_worker": "worker",
    "runtime.supervision:Supervisor.start_watchdog": "watchdog",
    "runtime.delivery:Delivery.start": "delivery",
    "traces.writer:TraceWriter.__init__": "trace",
    "coordinator.clock_thread:ClockThread.start": "clock",
    "coordinator.clock_thread:ClockWatch.__init__": "clock",
    "cameras.camera:Camera.start": "camera",
    "nodes.tasks.mailbox:Mailbox.__init__": "camera",
    "runtime.supervision:Supervisor._spawn": "",  # the threads above, restarts and giving back
    "runtime.supervision:Supervisor.see_return": "",  # closes a network, once
    "runtime.supervision:Supervisor._begin_restart": "",  # one restart; test_executor_faults.py
    "runtime.building.background_build:BackgroundBuild.start": "",  # test_background_build.py
    "runtime.preloading:preload": "",  # imports only
    "runtime.sharing.core_split:run_side_by_side": "",  # before the first frame
    "platforms.guardian:Guardian.__init__": "",  # test_guardian.py, campaign 4
    "platforms.power:measure_mean_power": "",  # of `profile`
    "nodes.process.late_answer:answer_late.begin": "",  # answers one service
    "nodes.process.paced_answers:PacedAnswers._defer": "",  # test_paced_answers.py
    "nodes.process.spinner:Spinner.start": "",  # test_spinner.py, campaign 2
    "nodes.process.running:stop_on_signals": "",  # the end of the process, campaign 4
    "nodes.process.running:run_node": "",
    "nodes.process.running:_Process.end": "",
}
"""Every start of a thread in the package, and its kind here; empty = not one of this campaign."""


@dataclass(frozen=True)
class Site:
    """A call: where it is, in which function, and what is called."""

    module: str  # without the package
    span: tuple[int, int, int, int]  # line and column of its beginning and its end
    function: str
    callee: str

    def __str__(self) -> str:
        path = self.module.replace(".", "/")
        return f"{path}.py:{self.span[0]} {self.function}: {self.callee}()"


@dataclass(eq=False)
class Class:
    """A class of the package, with what is known of its attributes."""

    name: str
    module: Module
    node: ast.ClassDef
    methods: dict[str, Function] = field(default_factory=dict)
    attributes: dict[str, set[Class]] = field(default_factory=dict)
    bases: list[Class] = field(default_factory=list)
    children: list[Class] = field(default_factory=list)
    is_protocol: bool = False

    def find(self, name: str) -> list[Function]:
        """Methods of a name: its own or a base's, and those of subclasses."""
        found = [c.methods[name] for c in self._family() if name in c.methods]
        for one in self._ancestors():
            if name in one.methods:
                found.append(one.methods[name])
                break
        return found

    def types(self, name: str) -> set[Class]:
        """Classes that an attribute may have."""
        found: set[Class] = set()
        for one in (*self._ancestors(), *self._family()):
            found |= one.attributes.get(name, set())
        return found

    def _family(self) -> Iterator[Class]:
        yield self
        for child in self.children:
            yield from child._family()

    def _ancestors(self) -> Iterator[Class]:
        yield self
        for base in self.bases:
            yield from base._ancestors()


@dataclass(eq=False)
class Function:
    """A function, method, nested function or lambda."""

    name: str
    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    owner: Class | None
    outer: Function | None
    inner: dict[str, Function] = field(default_factory=dict)
    lambdas: list[Function] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    is_property: bool = False

    @cached_property
    def own_nodes(self) -> list[ast.AST]:
        """Nodes of its body, without those of functions in it."""
        return [
            node
            for node in _walk_own(self.node)
            if isinstance(node, (*_BINDERS, ast.Attribute, ast.Subscript, ast.Name))
        ]

    @property
    def key(self) -> str:
        """``runtime.task:Task.load``."""
        return f"{self.module.name}:{self.name}"

    @property
    def sites(self) -> list[Site]:
        """Its calls."""
        return [
            Site(self.module.name, span_of(call), self.name, ast.unparse(call.func)[:60])
            for call in self.calls
        ]


@dataclass(eq=False)
class Module:
    """A module of the package."""

    name: str  # without the package
    tree: ast.Module
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)  # module, name or ""


_BINDERS = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension, ast.withitem)
"""What gives names their values."""


def span_of(node: ast.expr) -> tuple[int, int, int, int]:
    """The beginning and the end of an expression."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


class Program:
    """The sources of the package, with their calls resolved."""

    def __init__(self) -> None:
        self.modules: dict[str, Module] = {}
        self.all_functions: dict[str, list[Function]] = {}
        self._known: dict[int, set[Class]] = {}  # by expression, within one pass
        self._known_names: dict[tuple[str, str], list[Class]] = {}
        self._known_types: dict[int, set[Class]] = {}  # by annotation
        self._known_implementations: dict[int, set[Class]] = {}  # by protocol
        files = [f for name in FOLDERS for f in (ROOT / PACKAGE / name).rglob("*.py")]
        for file in sorted((*files, *(ROOT / PACKAGE).glob("*.py"))):
            path = file.relative_to(ROOT / PACKAGE).with_suffix("")
            name = ".".join(path.parts).removesuffix(".__init__")
            module = Module(name, ast.parse(file.read_text(encoding="utf-8")))
            self.modules[name] = module
            _Collector(self, module).visit(module.tree)
        for module in self.modules.values():
            self._link(module)
        self._find_attributes()

    def functions_of(self, kind: str) -> dict[str, Function]:
        """Functions that the threads of a kind may run, by their keys."""
        todo = [f for key in (*ROOTS[kind], *EVERY_THREAD) for f in self.all_functions[key]]
        found: dict[int, Function] = {}
        while todo:
            function = todo.pop()
            if id(function) in found or function.key.startswith(LEFT_OUT):
                continue
            found[id(function)] = function
            todo += self._edges(function)
        return {f"{f.key}:{f.node.lineno}": f for f in found.values()}

    def sites_of(self, kind: str) -> list[Site]:
        """Call sites that the threads of a kind may reach, in the order of the sources."""
        sites = {site for f in self.functions_of(kind).values() for site in f.sites}
        return sorted(sites, key=lambda site: (site.module, site.span))

    @cached_property
    def thread_starts(self) -> list[str]:
        """Functions that start threads."""
        found = {
            function.key
            for functions in self.all_functions.values()
            for function in functions
            for call in function.calls
            if _last_name(call.func) in STARTERS and function.key.startswith(SEARCHED)
        }
        return sorted(found)

    # -- classes -------------------------------------------------------------------------------

    def _link(self, module: Module) -> None:
        for one in module.classes.values():
            for base in one.node.bases:
                name = _last_name(base.value if isinstance(base, ast.Subscript) else base)
                one.is_protocol |= name == "Protocol"
                for other in self._named_classes(module, name):
                    one.bases.append(other)
                    other.children.append(one)

    def _named_classes(self, module: Module, name: str) -> list[Class]:
        key = module.name, name
        if key not in self._known_names:
            self._known_names[key] = self._find_named(module, name)
        return self._known_names[key]

    def _find_named(self, module: Module, name: str) -> list[Class]:
        if name in module.classes:
            return [module.classes[name]]
        source, original = module.imports.get(name, ("", ""))
        other = self.modules.get(source)
        if other is None or not original:
            return []
        if original in other.classes:
            return [other.classes[original]]
        return self._alias(other, original)

    def _alias(self, module: Module, name: str) -> list[Class]:
        """Classes in an alias of a type: ``Stages = Mapping[str, Sequence[Stage]]``."""
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == name for target in node.targets
            ):
                return list(self._annotated(module, node.value))
        return []

    def _annotated(self, module: Module, node: ast.expr | None) -> set[Class]:
        """Classes that an annotation names."""
        if node is None:
            return set()
        if id(node) in self._known_types:
            return self._known_types[id(node)]
        found: set[Class] = set()
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                found.update(
                    self._named_classes(module, part.id) or self._alias_here(module, part)
                )
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                found.update(self._named_classes(module, part.value))
        self._known_types[id(node)] = found = self._implementations(found)
        return found

    def _alias_here(self, module: Module, name: ast.Name) -> list[Class]:
        return [] if name.id == "Callable" else self._alias(module, name.id)

    def _implementations(self, classes: set[Class]) -> set[Class]:
        """The classes, and for a protocol all that have its methods."""
        found = set(classes)
        for one in classes:
            if one.is_protocol and one.methods:
                if id(one) not in self._known_implementations:
                    self._known_implementations[id(one)] = {
                        c for c in self._every_class if one.methods.keys() <= c.methods.keys()
                    }
                found |= self._known_implementations[id(one)]
        return found

    @cached_property
    def _every_class(self) -> list[Class]:
        return [one for module in self.modules.values() for one in module.classes.values()]

    def _find_attributes(self) -> None:
        for one in self._every_class:
            for node in one.node.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    types = self._annotated(one.module, node.annotation)
                    one.attributes.setdefault(node.target.id, set()).update(types)
        for _ in range(2):  # attributes made from other attributes
            for one in self._every_class:
                for method in one.methods.values():
                    self._find_set(one, method)

    def _find_set(self, one: Class, method: Function) -> None:
        known = self._locals(method)
        for node in method.own_nodes:
            if isinstance(node, ast.Assign):
                targets, annotation, value = node.targets, None, node.value
            elif isinstance(node, ast.AnnAssign):
                targets, annotation, value = [node.target], node.annotation, node.value
            else:
                continue
            for target, part in _pairs(targets, value):
                if isinstance(target, ast.Attribute) and _last_name(target.value) == "self":
                    types = set(self._annotated(one.module, annotation))
                    types |= self._types(method, part, known)
                    one.attributes.setdefault(target.attr, set()).update(types)

    # -- expressions ---------------------------------------------------------------------------

    def _locals(self, function: Function) -> dict[str, set[Class]]:
        """Classes of a function's names, as far as they are known."""
        known = {} if function.outer is None else dict(self._locals(function.outer))
        arguments = function.node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for argument in every:
            known[argument.arg] = set(self._annotated(function.module, argument.annotation))
        if function.owner is not None and function.outer is None and every:
            known[every[0].arg] = {function.owner}
        for _ in range(2):
            self._known.clear()
            for node in function.own_nodes:
                if isinstance(node, _BINDERS):
                    self._assign(function, node, known)
        self._known.clear()
        return known

    def _assign(self, function: Function, node: ast.AST, known: dict[str, set[Class]]) -> None:
        targets: Iterable[ast.expr | None]
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign):
            if isinstance(node.target, ast.Name):
                types = self._annotated(function.module, node.annotation)
                known.setdefault(node.target.id, set()).update(types)
            return
        elif isinstance(node, ast.NamedExpr):
            targets, value = [node.target], node.value
        elif isinstance(node, ast.For | ast.comprehension):
            targets, value = [node.target], node.iter
        elif isinstance(node, ast.withitem):
            targets, value = [node.optional_vars], node.context_expr
        else:
            return
        for target, source in _pairs(targets, value):
            types = self._types(function, source, known)
            for part in ast.walk(target):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    known.setdefault(part.id, set()).update(types)

    def _types(
        self, function: Function, node: ast.expr | None, known: dict[str, set[Class]]
    ) -> set[Class]:
        """Classes that an expression may have; a container counts as what is in it."""
        if id(node) not in self._known:
            self._known[id(node)] = self._find_types(function, node, known)
        return self._known[id(node)]

    def _find_types(
        self, function: Function, node: ast.expr | None, known: dict[str, set[Class]]
    ) -> set[Class]:
        if isinstance(node, ast.Name):
            if node.id in known:
                return known[node.id]
            return self._global_types(function.module, node.id)
        if isinstance(node, ast.Attribute):
            found: set[Class] = set()
            for one in self._types(function, node.value, known):
                found |= one.types(node.attr)
                for method in one.find(node.attr):
                    if method.is_property:
                        found |= self._returned(method)
            return self._implementations(found)
        if isinstance(node, ast.Call):
            classes, functions = self._callees(function, node, known)
            found = set(classes)
            for one in functions:
                found |= self._returned(one)
            if not found and isinstance(node.func, ast.Attribute):
                return self._types(function, node.func.value, known)  # ``.values()``, ``.get(x)``
            if isinstance(node.func, ast.Name) and not found:
                for argument in node.args:  # ``list(x)``, ``zip(x, y)``
                    found |= self._types(function, argument, known)
            return found
        found = set()
        children: Iterable[ast.AST] = () if node is None else ast.iter_child_nodes(node)
        for child in children:
            if isinstance(child, ast.expr):
                found |= self._types(function, child, known)
            elif isinstance(child, ast.comprehension):
                found |= self._types(function, child.iter, known)
        return found

    def _global_types(self, module: Module, name: str) -> set[Class]:
        """Class of a module's variable: ``FAULTS``."""
        source, original = module.imports.get(name, (module.name, name))
        other = self.modules.get(source)
        for node in other.tree.body if other is not None else ():
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == (original or name)
                for target in node.targets
            ):
                return {
                    one
                    for part in ast.walk(node.value)
                    if isinstance(part, ast.Call)
                    for one in self._named_classes(other, _last_name(part.func))
                }
        return set()

    def _returned(self, function: Function) -> set[Class]:
        if isinstance(function.node, ast.Lambda):
            return set()
        return self._annotated(function.module, function.node.returns)

    def _callees(
        self, function: Function, call: ast.Call, known: dict[str, set[Class]]
    ) -> tuple[list[Class], list[Function]]:
        """What a call may call: classes that it makes, and functions."""
        module, callee = function.module, call.func
        if isinstance(callee, ast.Name):
            outer: Function | None = function
            while outer is not None:
                if callee.id in outer.inner:
                    return [], [outer.inner[callee.id]]
                outer = outer.outer
            if classes := self._named_classes(module, callee.id):
                return classes, []
            return [], self._named_functions(module, callee.id)
        if not isinstance(callee, ast.Attribute):
            return [], []
        owner = callee.value
        if isinstance(owner, ast.Call) and _last_name(owner.func) == "super":
            bases = function.owner.bases if function.owner is not None else []
            return [], [f for base in bases for f in base.find(callee.attr)]
        if isinstance(owner, ast.Name):
            source, original = module.imports.get(owner.id, ("", ""))
            other = self.modules.get(f"{source}.{original}" if original else source)
            if other is not None:
                if callee.attr in other.classes:
                    return [other.classes[callee.attr]], []
                return [], self._named_functions(other, callee.attr)
        types = self._types(function, owner, known)
        if isinstance(owner, ast.Name):
            types = types | set(self._named_classes(module, owner.id))
        if types:
            return [], [f for one in types for f in one.find(callee.attr)]
        if callee.attr in _OF_BUILTINS:
            return [], []
        return [], [c.methods[callee.attr] for c in module.classes.values()
                    if callee.attr in c.methods]  # fmt: skip

    def _named_functions(self, module: Module, name: str) -> list[Function]:
        if name in module.functions:
            return [module.functions[name]]
        source, original = module.imports.get(name, ("", ""))
        other = self.modules.get(source)
        return [other.functions[original]] if other and original in other.functions else []

    def writes_of(self, function: Function) -> list[tuple[str, Class]]:
        """Attributes that a function sets or deletes, or an item of them, with their classes.

        Those that a setter takes are not among them: it is a method.
        """
        known, found = self._locals(function), []
        for node in function.own_nodes:
            if not isinstance(node, ast.Attribute | ast.Subscript):
                continue
            target = node.value if isinstance(node, ast.Subscript) else node
            if isinstance(node.ctx, ast.Load) or not isinstance(target, ast.Attribute):
                continue
            for one in self._types(function, target.value, known):
                if not one.find(target.attr):
                    found.append((target.attr, one))
        return found

    def _edges(self, function: Function) -> list[Function]:
        """Functions that a function may call."""
        known = self._locals(function)
        found: list[Function] = []
        started: set[int] = set()
        for call in function.calls:
            classes, functions = self._callees(function, call, known)
            found += functions
            for one in classes:
                found += [
                    *one.find("__init__"),
                    *one.find("__post_init__"),
                    *one.find("__enter__"),
                ]
                found += one.find("__exit__")
            if _last_name(call.func) in STARTERS:
                started |= {id(part) for part in ast.walk(call)}
        for node in function.own_nodes:
            if isinstance(node, ast.Attribute) and id(node) not in started:
                for one in self._types(function, node.value, known):
                    found += one.find(node.attr)
            elif isinstance(node, ast.Subscript):
                for one in self._types(function, node.value, known):
                    found += one.find("__getitem__")
            elif isinstance(node, ast.Name) and node.id in function.inner:
                found.append(function.inner[node.id])
            elif isinstance(node, ast.withitem):
                for one in self._types(function, node.context_expr, known):
                    found += [*one.find("__enter__"), *one.find("__exit__")]
        found += [one for one in function.lambdas if id(one.node) not in started]
        return found


_OF_BUILTINS = frozenset(
    name
    for kind in (list, dict, set, str, bytes, tuple, Path, os.PathLike)
    for name in dir(kind)
    if not name.startswith("__")
) | {"wait", "set", "is_set", "acquire", "release", "notify", "notify_all", "join", "start", "put",
     "get", "result", "close", "read", "write", "popleft", "appendleft"}  # fmt: skip


def _pairs(
    targets: Iterable[ast.expr | None], value: ast.expr | None
) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Targets of an assignment with what each gets: ``a, b = x, y`` are two."""
    for target in targets:
        both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        if both and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        elif target is not None:
            yield target, value


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _walk_own(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function's body, without those of functions in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _walk_own(child)


class _Collector(ast.NodeVisitor):
    """Finds functions, classes, imports and calls of a module."""

    def __init__(self, program: Program, module: Module) -> None:
        self._program, self._module = program, module
        self._class: Class | None = None
        self._function: Function | None = None

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._module.imports[alias.asname or alias.name] = _local(alias.name), ""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            name = alias.asname or alias.name
            self._module.imports[name] = _local(node.module or ""), alias.name

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        before = self._class, self._function
        if self._function is None:
            self._class = Class(node.name, self._module, node)
            self._module.classes[node.name] = self._class
        for child in node.body:
            self.visit(child)
        self._class, self._function = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, owner = self._function, self._class
        name = node.name
        if outer is not None:
            name = f"{outer.name}.{name}"
        elif owner is not None:
            name = f"{owner.name}.{name}"
        function = Function(name, self._module, node, owner, outer)
        names = {_last_name(d) for d in node.decorator_list}
        function.is_property = bool(names & {"property", "cached_property", "setter"})
        self._add(function)
        if outer is not None:
            outer.inner[node.name] = function
        elif owner is not None:
            owner.methods.setdefault(node.name, function)
        else:
            self._module.functions[node.name] = function
        self._function = function
        for child in node.body:
            self.visit(child)
        self._function = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        outer = self._function
        if outer is None:
            return  # of a module or a class: no thread is known
        function = Function(f"{outer.name}.<lambda>", self._module, node, self._class, outer)
        self._add(function)
        outer.lambdas.append(function)
        self._function = function
        self.visit(node.body)
        self._function = outer

    def visit_Call(self, node: ast.Call) -> None:
        if self._function is not None:
            self._function.calls.append(node)
        self.generic_visit(node)

    def _add(self, function: Function) -> None:
        self._program.all_functions.setdefault(function.key, []).append(function)


def _local(module: str) -> str:
    """A module's name without the package; unchanged where it is another's."""
    prefix = f"{PACKAGE}."
    return module.removeprefix(prefix) if module.startswith(prefix) else f"<{module}>"
