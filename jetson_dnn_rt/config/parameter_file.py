# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ROS parameter files, read without ROS: the values that a node of a given name would get."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jetson_dnn_rt.config.declaration import Values, read_values
from jetson_dnn_rt.config.nodes import PERCEPTION, PerceptionNodeConfig
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety import small_files
from jetson_dnn_rt.safety import yaml_files as safe_yaml

MAX_BYTES = 1 << 20
MAX_NAME = 255
"""Characters of a parameter's name, its groups included."""

_VALUES = "ros__parameters"


class _Loader(safe_yaml.Loader):
    """Reads ``1e-3`` as a number, as ROS does and YAML 1.1 does not."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


@dataclass(frozen=True)
class ParameterFile:
    """The sections of a file, in its order.

    A section is the pattern of the full names of nodes, as ``/**/detector``, with the values by
    their names with dots. `given_namespace` says where the nodes are, if that is known.
    """

    path: Path
    sections: tuple[tuple[str, dict[str, Any]], ...]
    given_namespace: str = ""

    def of(self, name: str) -> dict[str, Any]:
        """Values of the node ``/rear/detector`` (full name); later sections win, as in rcl."""
        values: dict[str, Any] = {}
        for pattern, section in self.sections:
            if matches(pattern, name):
                values |= section
        return values

    @property
    def namespace(self) -> str:
        """Namespace of `perception`, as given or as in the file: ``/`` or ``/robot/``."""
        if self.given_namespace.strip("/"):
            return f"/{self.given_namespace.strip('/')}/"
        for pattern, _ in self.sections:
            space, _, name = pattern.rpartition("/")
            if name == PERCEPTION and "*" not in space:
                return f"{space}/"
        return "/"

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks of `perception`; ConfigurationError when they are not names."""
        return self.read(PerceptionNodeConfig, PERCEPTION).tasks

    def of_task(self, task: str) -> dict[str, Any]:
        """Values of a task of `perception`, ``rear/detector``."""
        return self.of(f"{self.namespace}{task}")

    def read(
        self,
        declaration: type[Values],
        node: str,
        overrides: Mapping[str, Any] | None = None,
        **defaults: Any,
    ) -> Values:
        """Read the values of a node of `namespace`; see `read_values`.

        Raises
        ------
        ConfigurationError
            When one cannot be used; the text begins with the file and the node.
        """
        given = {**self.of_task(node), **(overrides or {})}
        try:
            return read_values(declaration, given, **defaults)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.path}: {node}: {error}") from error


def read_parameter_file(path: Path) -> ParameterFile:
    """Read a file of ROS parameters; ConfigurationError when it is missing or damaged."""
    try:
        root = yaml.compose(small_files.read_text(path, MAX_BYTES), Loader=_Loader)
        sections = tuple(_find_sections(root, "")) if root is not None else ()
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"parameter file {path}: {error}") from error
    return ParameterFile(path, sections)


def read_parameter_files(paths: Sequence[Path], namespace: str = "") -> ParameterFile:
    """Read several files as one, the values of later ones win.

    `namespace` is that of the nodes; empty = what the files say.
    """
    files = [read_parameter_file(path) for path in paths]
    sections = tuple(section for file in files for section in file.sections)
    return ParameterFile(Path(", ".join(map(str, paths))), sections, namespace)


def _find_sections(node: yaml.Node, space: str) -> Iterator[tuple[str, dict[str, Any]]]:
    # Walked as nodes: in a dict only the last of two equal names would be left.
    if not isinstance(node, yaml.MappingNode):
        raise ValueError(f"{space or 'the file'} must hold names of nodes with {_VALUES}")
    for key, value in node.value:
        if (name := _name_of(key)) == _VALUES:
            yield space, _flatten(value)
        else:
            yield from _find_sections(value, f"{space}/{name.strip('/')}")


def _flatten(node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode) and not node.value:
        return {}
    if not isinstance(node, yaml.MappingNode):
        raise ValueError(f"{_VALUES} must hold names with values")
    values: dict[str, Any] = {}
    for key, value in node.value:
        group = _name_of(key)
        if isinstance(value, yaml.MappingNode):
            for name, inner in _flatten(value).items():
                if len(group) + len(name) >= MAX_NAME:
                    raise ValueError(f"a name has more than {MAX_NAME} characters: {group}...")
                values[f"{group}.{name}"] = inner
        else:
            values[group] = _construct(value)
    return values


def _name_of(key: yaml.Node) -> str:
    if not isinstance(key, yaml.ScalarNode) or len(key.value) > MAX_NAME:
        raise ValueError(f"a name must be a text of at most {MAX_NAME} characters")
    return str(key.value)


def _construct(node: yaml.Node) -> Any:
    loader = _Loader("")
    try:
        return loader.construct_object(node, deep=True)
    finally:
        loader.dispose()


def matches(pattern: str, name: str) -> bool:
    """Whether a section is for the node of a full name.

    In its pattern ``/**`` stands for any number of names, ``/*`` for one.
    """
    parts = []
    for part in pattern.strip("/").split("/"):
        if part == "**":
            parts.append(r"(/\w+)*")
        elif part == "*":
            parts.append(r"/\w+")
        else:
            parts.append("/" + re.escape(part))
    return re.fullmatch("".join(parts), name) is not None
