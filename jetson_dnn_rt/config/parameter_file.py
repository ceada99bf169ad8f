# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ROS parameter files, read without ROS: the values that a node of a given name would get."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jetson_dnn_rt.config.declaration import Values, read_values
from jetson_dnn_rt.config.nodes import PERCEPTION, PerceptionNodeConfig
from jetson_dnn_rt.config.suggestions import find_similar
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.safety import small_files
from jetson_dnn_rt.safety import yaml_files as safe_yaml

MAX_BYTES = 1 << 20
MAX_NAME = 255
"""Characters of a parameter's name, its groups included, and of a node's with its namespace."""

_VALUES = "ros__parameters"


class _Loader(safe_yaml.Loader):
    """Reads ``1e-3`` as a number, as ROS does and YAML 1.1 does not."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


@dataclass(frozen=True)
class Section:
    """Values for the nodes whose full names match a pattern, as ``/**/detector``."""

    pattern: str
    values: dict[str, Any]  # by their names with dots
    path: Path
    line: int
    lines: dict[str, int]  # of the values, by their names

    @property
    def place(self) -> str:
        """File and line, for errors."""
        return f"{self.path}, line {self.line}"

    def locate(self, parameter: str) -> str:
        """File and line of one of the values, for errors."""
        return f"{self.path}, line {self.lines[parameter]}"


@dataclass(frozen=True)
class ParameterFile:
    """The sections of a file, in its order.

    `given_namespace` says where the nodes are, if that is known.
    """

    path: Path
    sections: tuple[Section, ...]
    given_namespace: str = ""

    def of(self, name: str) -> dict[str, Any]:
        """Values of the node ``/rear/detector`` (full name); later sections win, as in rcl."""
        values: dict[str, Any] = {}
        for section in self._find(name):
            values |= section.values
        return values

    @property
    def namespace(self) -> str:
        """Namespace of `perception`, as given or as in the file: ``/`` or ``/robot/``."""
        if self.given_namespace.strip("/"):
            return f"/{self.given_namespace.strip('/')}/"
        for section in self.sections:
            space, _, name = section.pattern.rpartition("/")
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
            When one cannot be used; the text is that of `explain`.
        """
        given = {**self.of_task(node), **(overrides or {})}
        try:
            return read_values(declaration, given, **defaults)
        except ConfigurationError as error:
            text = self.explain(node, error, overrides or {})
            raise ConfigurationError(text, error.parameter) from error

    def explain(self, node: str, error: JetsonDnnRtError, overrides: Container[str] = ()) -> str:
        """Say what is wrong with a value of a node of `namespace`: ``FILE, line 4: NODE: why``.

        Without file and line where the value is not from the file, or is overridden.
        """
        place = "" if error.parameter in overrides else self.locate(node, error.parameter)
        return f"{place}: {node}: {error}" if place else f"{node}: {error}"

    def locate(self, node: str, parameter: str) -> str:
        """File and line that set a parameter of a node of `namespace`; empty where none does."""
        place = ""
        for section in self._find(f"{self.namespace}{node}"):  # the last one wins
            if parameter in section.lines:
                place = section.locate(parameter)
        return place

    def _find(self, name: str) -> Iterator[Section]:
        """The sections for a node, by its full name."""
        return (one for one in self.sections if matches(one.pattern, name))


def read_parameter_file(path: Path) -> ParameterFile:
    """Read a file of ROS parameters; ConfigurationError when it is missing, damaged or empty."""
    try:
        root = yaml.compose(small_files.read_text(path, MAX_BYTES), Loader=_Loader)
        sections = tuple(_find_sections(root, path)) if root is not None else ()
    except FileNotFoundError as error:
        raise ConfigurationError(f"parameter file {path} does not exist") from error
    except yaml.MarkedYAMLError as error:
        raise ConfigurationError(f"parameter file {path}{_explain(error)}") from error
    except OSError as error:
        raise ConfigurationError(
            f"parameter file {path} cannot be read: {error.strerror}; give a YAML file"
        ) from error
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"parameter file {path}: {error}") from error
    if not sections:
        raise ConfigurationError(
            f"parameter file {path} is empty: it must hold names of nodes, each with {_VALUES}; "
            "config/perception.param.yaml of the package is one with a comment for each"
        )
    return ParameterFile(path, sections)


def read_parameter_files(paths: Sequence[Path], namespace: str = "") -> ParameterFile:
    """Read several files as one, the values of later ones win.

    `namespace` is that of the nodes; empty = what the files say.
    """
    files = [read_parameter_file(path) for path in paths]
    sections = tuple(section for file in files for section in file.sections)
    return ParameterFile(Path(", ".join(map(str, paths))), sections, namespace)


def _explain(error: yaml.MarkedYAMLError) -> str:
    """Where the file is wrong, and how; the parser's own words for a tab are a riddle."""
    mark = error.problem_mark or error.context_mark
    problem = str(error.problem or error.context)
    if "'\\t'" in problem:
        problem = "a tab: YAML is indented with spaces"
    return f", line {mark.line + 1}: {problem}" if mark is not None else f": {problem}"


def _find_sections(root: yaml.Node, path: Path, space: str = "") -> Iterator[Section]:
    # Walked as nodes: in a dict only the last of two equal names would be left.
    line = root.start_mark.line + 1
    if len(space) > MAX_NAME:
        raise ValueError(f"line {line}: the name of a node has more than {MAX_NAME} characters")
    if not isinstance(root, yaml.MappingNode):
        if not space:
            raise ValueError(f"it must hold names of nodes, each with {_VALUES}")
        above = posixpath.basename(posixpath.dirname(space))
        if meant := find_similar(above, [_VALUES]):
            raise ValueError(f"line {line}: {above}; did you mean {meant}?")
        raise ValueError(
            f"line {line}: {space} must hold names of nodes with {_VALUES}; parameters of a node "
            f"are written NODE: {{{_VALUES}: {{NAME: VALUE}}}}"
        )
    for name_node, value in root.value:
        if (name := _name_of(name_node)) == _VALUES:
            lines: dict[str, int] = {}
            yield Section(
                space, _flatten(value, lines), path, name_node.start_mark.line + 1, lines
            )
        else:
            yield from _find_sections(value, path, f"{space}/{name.strip('/')}")


def _flatten(node: yaml.Node, lines: dict[str, int], above: str = "") -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode) and not node.value:
        return {}
    if not isinstance(node, yaml.MappingNode):
        raise ValueError(f"{_VALUES} must hold names with values")
    values: dict[str, Any] = {}
    for key, value in node.value:
        name = f"{above}{_name_of(key)}"
        if len(name) > MAX_NAME:
            raise ValueError(f"a name has more than {MAX_NAME} characters: {above}...")
        if isinstance(value, yaml.MappingNode):
            values |= _flatten(value, lines, f"{name}.")
        else:
            values[name] = _construct(value)
            lines[name] = key.start_mark.line + 1
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
    names = name.split("/")[1:]
    # How many names the pattern can have used up so far; as one regular expression, twenty `/**`
    # would take minutes.
    used = {0}
    for part in pattern.strip("/").split("/"):
        if part == "**":
            used = set(range(min(used), len(names) + 1))
        else:
            used = {n + 1 for n in used if n < len(names) and part in ("*", names[n])}
        if not used:
            return False
    return len(names) in used
