# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""YAML from untrusted files, with bounds on what a few bytes can expand to."""

from __future__ import annotations

import reprlib
from typing import Any, ClassVar

import yaml

MAX_EXPANDED = 4_000_000
"""Characters of a document when each alias is written out."""

MAX_DEPTH = 64
"""Depth of nested lists and mappings, aliases written out."""

MAX_NUMBER = 1000
"""Characters of a number; a double has 309 digits before its point at most."""


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with bounds on what aliases, nesting and numbers cost.

    Anchors and aliases may be used. A few hundred bytes of them can stand for gigabytes, which
    appear when a value is turned into text.
    """

    def get_single_node(self) -> yaml.Node | None:
        """Compose the document, and refuse one that is larger than it looks."""
        try:
            node: yaml.Node | None = super().get_single_node()
            if node is not None:
                self._weigh(node, {})
        except RecursionError as error:
            raise yaml.YAMLError(
                f"more than {MAX_DEPTH} lists or mappings in each other"
            ) from error
        return node

    def _weigh(self, node: yaml.Node, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
        """Characters and depth of a node, aliases written out; each node is weighed once."""
        if id(node) in known:
            weight = known[id(node)]
            if weight is None:
                raise yaml.MarkedYAMLError(
                    problem="a value contains itself", problem_mark=node.start_mark
                )
            return weight
        if isinstance(node, yaml.ScalarNode):
            size, depth = 1 + len(node.value), 0
        else:
            known[id(node)] = None
            parts = node.value
            if isinstance(node, yaml.MappingNode):
                parts = [part for pair in parts for part in pair]
            size, depth = 1, 0
            for part in parts:
                more, below = self._weigh(part, known)
                size, depth = size + more, max(depth, below)
            depth += 1
        if size > MAX_EXPANDED or depth > MAX_DEPTH:
            problem = f"more than {MAX_DEPTH} lists or mappings in each other"
            if size > MAX_EXPANDED:
                problem = f"a value of more than {MAX_EXPANDED} characters, aliases written out"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        known[id(node)] = size, depth
        return size, depth

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Make the value of a node."""
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # Values that PyYAML's constructors cannot make, such as the 31st of February.
            raise yaml.MarkedYAMLError(
                problem=f"a value cannot be read: {error}", problem_mark=node.start_mark
            ) from error

    def _construct_number(self, node: yaml.ScalarNode) -> int | float:
        # 1:1:1:... is a number to base 60, for which the time grows with its length squared.
        if len(node.value) > MAX_NUMBER:
            raise yaml.MarkedYAMLError(
                problem=f"a number of more than {MAX_NUMBER} characters",
                problem_mark=node.start_mark,
            )
        is_int = node.tag.endswith(":int")
        construct = self.construct_yaml_int if is_int else self.construct_yaml_float
        value: int | float = construct(node)
        return value


for _kind in ("int", "float"):
    Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", Loader._construct_number)


class TextLoader(Loader):
    """Reads every plain word as a text: a class may be called ``no``, which is false in YAML."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]


def parse(text: str, loader: type[Loader] = Loader) -> Any:
    """Read one document, as ``yaml.safe_load`` does.

    YAMLError when it is not YAML, expands to too much, or has a value that its type cannot have.
    """
    return yaml.load(text, loader)


_short = reprlib.Repr()
_short.maxlevel = 2
_short.maxstring = _short.maxother = _short.maxlong = 100


def describe(value: object) -> str:
    """Show a value of a file in an error; long ones are cut off before they become text."""
    return _short.repr(value)[:200]
