# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Uses of the ROS API in this checkout, and the API as the sources of a distribution have it.

Both are read with `ast`; nothing is imported. A name is written ``module:name``, as it is imported
here: ``rclpy.qos:QoSProfile``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("rclpy", "launch", "launch_ros")
MESSAGES = "vision_msgs"

# Kinds of objects by the names that variables and attributes have in our code.
NODE = "rclpy.lifecycle:LifecycleNode"
RECEIVERS = {
    **dict.fromkeys(("node", "_node"), NODE),
    **dict.fromkeys(("publisher", "_publisher"), "rclpy.publisher:Publisher"),
    **dict.fromkeys(("client", "_client"), "rclpy.client:Client"),
    "context": "rclpy.context:Context",
    "executor": "rclpy.executors:SingleThreadedExecutor",
    "service": "rclpy.service:Service",
    "future": "rclpy.task:Future",
    # What a call of this name returns.
    "get_logger": "rclpy.impl.rcutils_logger:RcutilsLogger",
    "get_clock": "rclpy.clock:Clock",
    "now": "rclpy.time:Time",
}
OWN_NODES = "jetson_dnn_rt/nodes"

Entry = str | Mapping[str, str] | None
"""The signature of a function, ``""`` for a value, members of a class, None if it is absent."""


@dataclass(frozen=True)
class Call:
    """Arguments of a call, as far as they are written down."""

    positional: int
    keywords: tuple[str, ...]
    more: bool  # with * or **


@dataclass(frozen=True)
class Use:
    """A use of a name, or of a member of it."""

    place: str  # file:line
    name: str
    member: str = ""
    call: Call | None = None
    optional: bool = False  # imported where its absence is handled

    def __str__(self) -> str:
        return f"{self.place}: {self.name}{'.' if self.member else ''}{self.member}"


# -- what this checkout uses ---------------------------------------------------------------------


def find_uses(root: Path = ROOT) -> list[Use]:
    """All uses of `PACKAGES` on the robot: in the package and its launch files."""
    files = [*(root / "jetson_dnn_rt").rglob("*.py"), *(root / "launch").glob("*.py")]
    return [
        use
        for file in sorted(files)
        for use in _Uses(ast.parse(file.read_text("utf-8")), str(file.relative_to(root)))
    ]


def find_own_members(root: Path = ROOT) -> dict[str, str]:
    """Names that our node classes define or assign on themselves, with a place of each."""
    found: dict[str, str] = {}
    for file in sorted((root / OWN_NODES).rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        for one in ast.walk(tree):
            if isinstance(one, ast.ClassDef) and _is_node(one):
                place = f"{file.relative_to(root)}: {one.name}"
                found |= {name: place for name in _members(one) if name not in found}
    return found


def _is_node(kind: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id.endswith("Node") for base in kind.bases)


class _Uses:
    """Uses in one file."""

    def __init__(self, tree: ast.Module, file: str) -> None:
        self._tree, self._file = tree, file
        self._names: dict[str, str] = {}  # as they are called in the file
        self._parents = {
            child: one for one in ast.walk(tree) for child in ast.iter_child_nodes(one)
        }

    def __iter__(self) -> Iterator[Use]:
        yield from self._imports()
        for one in ast.walk(self._tree):
            if isinstance(one, ast.Name) and one.id in self._names:
                # `rclpy.init()` is a use of a module's name, `Clock()` one of the name itself.
                owner, above = self._names[one.id], self._parents[one]
                if isinstance(above, ast.Attribute):
                    yield self._use(above, owner, above.attr)
                elif isinstance(above, ast.Call) and above.func is one:
                    yield self._use(one, owner, "")
            elif isinstance(one, ast.Attribute) and (owner := self._receiver(one.value)):
                yield self._use(one, owner, one.attr)

    def _imports(self) -> Iterator[Use]:
        for one in ast.walk(self._tree):
            if isinstance(one, ast.Import):
                for alias in one.names:
                    if alias.name.split(".")[0] in PACKAGES:
                        self._names[alias.asname or alias.name] = f"{alias.name}:"
            elif isinstance(one, ast.ImportFrom) and (one.module or "").split(".")[0] in PACKAGES:
                optional = isinstance(self._parents[one], (ast.Try, ast.ExceptHandler))
                for alias in one.names:
                    name = f"{one.module}:{alias.name}"
                    self._names[alias.asname or alias.name] = name
                    yield Use(f"{self._file}:{one.lineno}", name, optional=optional)

    def _receiver(self, value: ast.expr) -> str:
        """Kind of object that an expression is, by its name."""
        if not self._file.startswith(OWN_NODES):
            return ""
        if isinstance(value, ast.Name) and value.id == "self":
            return NODE if self._in_node(value) else ""
        if isinstance(value, ast.Call):
            called = value.func
            if isinstance(called, ast.Name) and called.id == "super":
                return NODE if self._in_node(value) else ""
            value = called
        name = getattr(value, "id", "") or getattr(value, "attr", "")
        return RECEIVERS.get(name, "")

    def _in_node(self, one: ast.AST) -> bool:
        while (one := self._parents.get(one, self._tree)) is not self._tree:
            if isinstance(one, ast.ClassDef):
                return _is_node(one)
        return False

    def _use(self, one: ast.expr, name: str, member: str) -> Use:
        if name.endswith(":"):  # of a module
            name, member = name + member, ""
        above, call = self._parents[one], None
        if isinstance(above, ast.Call) and above.func is one:
            starred = any(isinstance(each, ast.Starred) for each in above.args)
            keywords = tuple(each.arg for each in above.keywords if each.arg is not None)
            more = starred or len(keywords) < len(above.keywords)
            plain = [each for each in above.args if not isinstance(each, ast.Starred)]
            call = Call(len(plain), keywords, more)
        return Use(f"{self._file}:{one.lineno}", name, member, call)


# -- what the sources of a distribution have -----------------------------------------------------


class Sources:
    """Python packages of a distribution: `folder` holds checkouts named as the packages."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trees: dict[str, ast.Module | None] = {}

    def look_up(self, name: str) -> Entry:
        """What a name ``module:name`` is."""
        module, _, target = name.partition(":")
        found = self._find(module, target)
        if found is None:
            return None
        where, one = found
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return _signature(one, bound=False)
        if isinstance(one, ast.ClassDef):
            return dict(sorted(self._class(where, one).items()))
        return ""

    def _tree(self, module: str) -> tuple[ast.Module, bool] | None:
        """A module, and whether it is a package."""
        path = self._folder / module.split(".")[0] / Path(*module.split("."))
        for file, package in ((path / "__init__.py", True), (path.with_suffix(".py"), False)):
            if file.is_file():
                if module not in self._trees:
                    self._trees[module] = ast.parse(file.read_text("utf-8"))
                tree = self._trees[module]
                assert tree is not None
                return tree, package
        return None

    def _find(self, module: str, name: str) -> tuple[str, ast.AST] | None:
        """The definition of a name, through imports and aliases, and the module that has it."""
        loaded = self._tree(module)
        if loaded is None:
            return None
        tree, package = loaded
        found: tuple[str, ast.AST] | None = None
        for one in _statements(tree.body):
            if isinstance(one, (ast.ClassDef, ast.FunctionDef)) and one.name == name:
                found = module, one
            elif isinstance(one, ast.ImportFrom):
                for alias in one.names:
                    if (alias.asname or alias.name) == name:
                        source = _absolute(one, module, package)
                        found = self._find(source, alias.name) or (module, one)
            elif isinstance(one, (ast.Assign, ast.AnnAssign)) and name in _targets(one):
                found = module, one
                # Another name for a class of the same module, or a member of a private binding.
                if isinstance(one.value, ast.Name) and one.value.id != name:
                    found = self._find(module, one.value.id) or found
        return found

    def _class(self, module: str, kind: ast.ClassDef) -> dict[str, str]:
        """Members of a class and of its bases in these packages."""
        members: dict[str, str] = {}
        keywords: list[str] = []
        for base in reversed(kind.bases):
            if isinstance(base, ast.Subscript):
                base = base.value
            found = self._find(module, base.id) if isinstance(base, ast.Name) else None
            where, one = found or ("", None)
            if isinstance(one, ast.ClassDef):
                inherited = self._class(where, one)
                members |= inherited
                keywords += [
                    one
                    for one in inherited.get("__init__", "").split(", ")
                    if one.endswith("=") and one not in keywords
                ]
        members |= _members(kind)
        # What a constructor takes in ** it hands to those of the bases.
        parts = members.get("__init__", "").split(", ")
        if parts[-1].startswith("**") and keywords:
            own = [one for one in parts[:-1] if one != "*"]
            given = {one.rstrip("=") for one in own}
            parts = [*parts[:-1], *([] if "*" in parts else ["*"])]
            parts += [one for one in keywords if one.rstrip("=") not in given]
            members["__init__"] = ", ".join(parts)
        return members


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, with those below `if` and `try`."""
    for one in body:
        yield one
        if isinstance(one, (ast.If, ast.Try)):
            yield from _statements(one.body)
            yield from _statements(one.orelse)
            for handler in getattr(one, "handlers", ()):
                yield from _statements(handler.body)


def _targets(one: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = one.targets if isinstance(one, ast.Assign) else [one.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _absolute(one: ast.ImportFrom, module: str, package: bool) -> str:
    if not one.level:
        return one.module or ""
    parts = module.split(".")
    base = parts[: len(parts) - one.level + (1 if package else 0)]
    return ".".join([*base, *([one.module] if one.module else [])])


def _members(kind: ast.ClassDef) -> dict[str, str]:
    """Signatures of a class's methods, and its attributes: its own, without mangled names."""
    members: dict[str, str] = {}
    for one in kind.body:
        if isinstance(one, (ast.Assign, ast.AnnAssign)):
            members |= dict.fromkeys(_targets(one), "")
        if not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        decorators = {ast.unparse(each) for each in one.decorator_list}
        is_value = any("property" in each or each.endswith(".setter") for each in decorators)
        bound = "staticmethod" not in decorators
        members[one.name] = "" if is_value else _signature(one, bound)
        for inner in ast.walk(one):
            if (
                isinstance(inner, ast.Attribute)
                and isinstance(inner.ctx, ast.Store)
                and isinstance(inner.value, ast.Name)
                and inner.value.id == "self"
            ):
                members.setdefault(inner.attr, "")
    return {
        name: signature
        for name, signature in members.items()
        if not name.startswith("__") or name == "__init__"
    }


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef, bound: bool) -> str:
    """Parameters in the form ``(a, b=, *, c=, **d)``."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    required = len(plain) - len(given.defaults)
    parts = [each.arg + ("=" if i >= required else "") for i, each in enumerate(plain)]
    if bound:
        parts = parts[1:]
    if given.vararg:
        parts.append(f"*{given.vararg.arg}")
    elif given.kwonlyargs:
        parts.append("*")
    parts += [
        each.arg + ("" if default is None else "=")
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        parts.append(f"**{given.kwarg.arg}")
    return "()" if not parts else ", ".join(parts)


def find_misfit(call: Call, signature: str) -> str:
    """Why a call does not fit a signature; empty if it does."""
    parts = [] if signature == "()" else signature.split(", ")
    first = next((i for i, part in enumerate(parts) if part.startswith("*")), len(parts))
    plain, keyword_only = parts[:first], parts[first:]
    takes_all = any(part.startswith("*") and part.strip("*") for part in parts)
    takes_any = any(part.startswith("**") for part in parts)
    names = {part.rstrip("=") for part in (*plain, *keyword_only)}
    if call.positional > len(plain) and not takes_all:
        return f"{call.positional} positional arguments, it takes {len(plain)}"
    unknown = [name for name in call.keywords if name not in names]
    if unknown and not takes_any:
        return f"no parameter {', '.join(unknown)}"
    given = {part.rstrip("=") for part in plain[: call.positional]} | set(call.keywords)
    needed = {part for part in (*plain, *keyword_only) if part[0] != "*" and part[-1] != "="}
    if not call.more and needed - given:
        return f"it needs {', '.join(sorted(needed - given))}"
    return ""


# -- messages ------------------------------------------------------------------------------------


def read_messages(folder: Path) -> dict[str, list[str]]:
    """Fields and constants of the messages of a package, ``type name``, by message."""
    found = {}
    for file in sorted((folder / "msg").glob("*.msg")):
        lines = [line.split("#")[0].split() for line in file.read_text("utf-8").splitlines()]
        # A type of the same package may stand without its name.
        fields = [" ".join(line).removeprefix(f"{MESSAGES}/") for line in lines if line]
        found[file.stem] = fields
    return found
