"""Functions and classes of a tree, or the difference between those of two trees.

    python tools/definitions.py TREE            every definition, with the hash of its code
    python tools/definitions.py TREE_A TREE_B   those that are in one tree only; exit code 1 if any

Shows that a pure move of code changed nothing: files, import statements and the package's dotted
names inside strings do not count; docstrings and the order of statements do. A definition is a
module's or a class' function, a class without its methods (its head and its assignments), or a
module's other statement, named ``=`` with its targets.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGE = "jetson_dnn_rt"
_DOTTED = re.compile(rf"\b{PACKAGE}(\.[a-z_0-9]+)+[.:]?")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SKIPPED = frozenset(("build", "install", "log", ".venv", "demo_output"))

Definition = tuple[str, str]
"""Qualified name, without the module, and the hash of the code."""


class _WithoutPlaces(ast.NodeTransformer):
    """Removes what a move changes: imports, and names of the package's modules in strings."""

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            return ast.Constant(_DOTTED.sub("", node.value))
        return node


def find_definitions(source: str) -> Iterator[Definition]:
    """Definitions of a module's source."""
    yield from _find(_WithoutPlaces().visit(ast.parse(source)).body, "")


def _find(body: Sequence[ast.stmt], prefix: str) -> Iterator[Definition]:
    for place, node in enumerate(body):
        if isinstance(node, _FUNCTIONS):
            yield prefix + node.name, _digest(node)
        elif isinstance(node, ast.ClassDef):
            head = copy.copy(node)
            inner = [one for one in node.body if isinstance(one, (*_FUNCTIONS, ast.ClassDef))]
            head.body = [one for one in node.body if one not in inner]
            yield prefix + node.name, _digest(head)
            yield from _find(inner, f"{prefix}{node.name}.")
        elif not (place == 0 and not prefix and _is_text(node)) and not _is_empty(node):
            yield f"= {_title(node)}", _digest(node)


def _is_text(node: ast.stmt) -> bool:
    """Whether it is a module's docstring: merged modules have one."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_empty(node: ast.stmt) -> bool:
    """Whether nothing is left of it without its imports: ``if TYPE_CHECKING``, ``try``."""
    kept = (ast.If, ast.Try, ast.With)
    return isinstance(node, kept) and not node.body


def _title(node: ast.stmt) -> str:
    targets: Sequence[ast.expr] = ()
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = (node.target,)
    if _is_text(node):
        return "text"  # below a constant, which it describes
    return ", ".join(map(ast.unparse, targets)) or type(node).__name__


def _digest(node: ast.AST) -> str:
    return hashlib.sha256(ast.dump(node).encode()).hexdigest()[:12]


def collect(tree: Path) -> Counter[Definition]:
    """Every definition below a folder, or of a file, with how often it is there."""
    files = [tree] if tree.is_file() else sorted(tree.rglob("*.py"))
    found: Counter[Definition] = Counter()
    for file in files:
        if not SKIPPED.intersection(file.relative_to(tree).parts):
            found.update(find_definitions(file.read_text(encoding="utf-8")))
    return found


def show(definitions: Counter[Definition], sign: str = "") -> None:
    """Print them, one a line."""
    for (name, digest), count in sorted(definitions.items()):
        print(f"{sign}{digest}  {name}" + (f"  x{count}" if count > 1 else ""))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a tree's definitions, or compare two trees."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="+", type=Path, metavar="TREE", help="a folder or a file")
    trees: list[Path] = parser.parse_args(arguments).trees
    if len(trees) > 2:
        parser.error("one tree, or two")
    for tree in trees:
        if not tree.exists():
            parser.error(f"{tree} is not there")
    before = collect(trees[0])
    if len(trees) == 1:
        show(before)
        return 0
    after = collect(trees[1])
    gone, new = before - after, after - before
    show(gone, "- ")
    show(new, "+ ")
    print(
        f"{sum((before & after).values())} definitions in both, {sum(gone.values())} only in "
        f"{trees[0]}, {sum(new.values())} only in {trees[1]}",
        file=sys.stderr,
    )
    return 1 if gone or new else 0


if __name__ == "__main__":
    sys.exit(main())
