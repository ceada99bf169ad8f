# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Names in parameter files and overrides, compared with the nodes and parameters that there are.

ROS itself gives a node what matches its name and silently drops the rest, so a misspelt section or
parameter would leave the defaults in place. The rule, for every reader of a parameter file:

- A parameter that the nodes of its section do not have is an error.
- A section that matches none of the nodes is an error where its name resembles one of theirs. So
  are both in a file that is only for these nodes (`jetson-dnn-rt run`). Otherwise they may be for
  nodes of others that share the file, and are noted.
- A section for one of the package's usual nodes that does not run now is noted.
"""

from __future__ import annotations

import contextlib
import functools
import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from jetson_dnn_rt.config.declaration import describe
from jetson_dnn_rt.config.nodes import (
    COORDINATOR,
    DEFAULT_TASKS,
    PERCEPTION,
    CameraConfig,
    CameraProcessConfig,
    CoordinatorConfig,
    CoordinatorProcessConfig,
    PerceptionNodeConfig,
)
from jetson_dnn_rt.config.parameter_file import ParameterFile, Section, matches
from jetson_dnn_rt.config.process import CommonConfig, ProcessConfig
from jetson_dnn_rt.config.suggestions import RESEMBLES, find_similar, suggest
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError

SHARED_PARAMETERS = ("autostart", "use_sim_time", "start_type_description_service")
"""Parameters that a configuration may set for all nodes, though not every node has them."""

QOS_OVERRIDES = "qos_overrides."
"""Begin of the names that rclpy declares for topics whose quality of service may be changed."""

TASKS = (*DEFAULT_TASKS, "classifier")
USUAL_NODES = (PERCEPTION, "camera", *TASKS, COORDINATOR)

_DECLARATIONS: dict[str, tuple[type[Any], ...]] = {
    "task": (TaskConfig, ProcessConfig),
    "camera": (CameraConfig, CameraProcessConfig),
    PERCEPTION: (PerceptionNodeConfig,),
    COORDINATOR: (CoordinatorConfig, CoordinatorProcessConfig),
}


def declarations_of(kind: str) -> tuple[type[Any], ...]:
    """Dataclasses of the parameters of a task, camera, `PERCEPTION` or `COORDINATOR`.

    Those are among them that it has only in a process of its own.
    """
    return _DECLARATIONS[kind]


def list_parameters(kind: str = "") -> set[str]:
    """Names of the parameters of a task, camera, `PERCEPTION` or `COORDINATOR`; empty = of all.

    Those are among them that it has only in a process of its own.
    """
    kinds = [kind] if kind else list(_DECLARATIONS)
    declarations: list[type[Any]] = [
        CommonConfig,
        *(one for kind in kinds for one in declarations_of(kind)),
    ]
    return {item.name for one in declarations for item in describe(one)}


def is_shared(name: str) -> bool:
    """Whether a parameter may be set for every node, declared or not."""
    return name in SHARED_PARAMETERS or name.startswith(QOS_OVERRIDES)


def check_names(
    file: ParameterFile,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    only_ours: bool = False,
    namespace: str = "",
) -> list[str]:
    """Check the names of a file's sections and parameters, and those of overrides.

    Parameters
    ----------
    file : ParameterFile
        What the nodes are started with.
    overrides : mapping, optional
        Values above the file's, by node and by their ROS names.
    only_ours : bool
        The file is for no other nodes.
    namespace : str
        Where the nodes are, as ``/`` or ``/robot/``; empty = as in the file.

    Returns
    -------
    list of str
        What the user should know: sections that are not used, tasks that the file does not name.

    Raises
    ------
    ConfigurationError
        When a name is misspelt. The text has the file, the line, the section and what was
        probably meant.
    """
    given = overrides or {}
    namespace = namespace or file.namespace
    own = file.read(PerceptionNodeConfig, PERCEPTION, given.get(PERCEPTION))
    running = _list_nodes(own)
    # Sections of nodes that an argument, or a later file, leaves out are no mistake.
    nodes = {**_list_named(file, namespace), **running}
    _check_overrides(given, running)
    unserved = [
        name
        for name in running
        if not any(matches(one.pattern, f"{namespace}{name}") for one in file.sections)
    ]
    notes = []
    for section in file.sections:
        notes += _check_section(section, nodes, unserved, namespace, only_ours)
    specific = [one for one in file.sections if not _is_general(one)]
    named = [
        task
        for task in own.tasks
        if task in given or any(matches(one.pattern, f"{namespace}{task}") for one in specific)
    ]
    _check_tasks(file, own.tasks, named)
    told = "tasks" in file.of_task(PERCEPTION) or "tasks" in given.get(PERCEPTION, {})
    if named and not told and (others := [task for task in own.tasks if task not in named]):
        notes.append(
            f"{', '.join(others)} runs, too, with its defaults: {file.path} has no section for "
            f"it; to leave it out: tasks: [{', '.join(named)}] in the section /**/{PERCEPTION}"
        )
    return notes


def _list_nodes(own: PerceptionNodeConfig) -> dict[str, set[str]]:
    """Parameters of every node, by its name without the namespace of `perception`."""
    nodes = {PERCEPTION: list_parameters(PERCEPTION)}
    nodes |= {name: list_parameters("camera") for name in own.cameras}
    nodes |= {name: list_parameters("task") for name in own.tasks}
    if own.coordinator:
        nodes[COORDINATOR] = list_parameters(COORDINATOR)
    return nodes


def _list_named(file: ParameterFile, namespace: str) -> dict[str, set[str]]:
    """Nodes by what the files say that were read together: the first, the first two, ..."""
    paths = list(dict.fromkeys(section.path for section in file.sections))
    nodes: dict[str, set[str]] = {}
    for count in range(1, len(paths) + 1):
        sections = tuple(one for one in file.sections if one.path in paths[:count])
        # A value that cannot be used may be replaced by a later file.
        with contextlib.suppress(ConfigurationError):
            part = ParameterFile(file.path, sections, namespace)
            nodes |= _list_nodes(part.read(PerceptionNodeConfig, PERCEPTION))
    return nodes


def _check_overrides(
    given: Mapping[str, Mapping[str, Any]], nodes: Mapping[str, set[str]]
) -> None:
    for node, values in given.items():
        if node not in nodes:
            raise ConfigurationError(
                f"there is no node {node} here, but {', '.join(nodes)}{suggest(node, nodes)}"
            )
        for name in values:
            if not is_shared(name) and name not in nodes[node]:
                raise ConfigurationError(f"{node}: {describe_unknown(name, nodes[node])}")


@functools.cache
def _list_forms() -> dict[str, str]:
    """How the parameters that are lists are written, by name."""
    items = [item for kinds in _DECLARATIONS.values() for one in kinds for item in describe(one)]
    return {item.name: item.list_form for item in items if item.list_form}


def describe_unknown(name: str, known: Iterable[str]) -> str:
    """There is no such parameter, and which was probably meant."""
    hint = suggest(name, known) or "; docs/parameters.md lists those that there are"
    group, dot, part = name.partition(".")
    if dot and group in known and (form := _list_forms().get(group)):
        first = f'["{part}=VALUE"]' if "=" in form else form
        hint = f"; {group} is a list: write {group}: {first}"
    return f"there is no parameter {name}{hint}"


def _is_general(section: Section) -> bool:
    """Whether a section is for nodes of any name."""
    return "*" in posixpath.basename(section.pattern)


def _check_section(
    section: Section,
    nodes: Mapping[str, set[str]],
    unserved: Sequence[str],
    namespace: str,
    only_ours: bool,
) -> list[str]:
    matched = [name for name in nodes if matches(section.pattern, f"{namespace}{name}")]
    if not matched:
        return [_judge_unmatched(section, list(nodes), unserved, namespace, only_ours)]
    known = set().union(*(nodes[name] for name in matched))
    notes = []
    for name in section.values:
        if is_shared(name) or name in known:
            continue
        text = describe_unknown(name, known)
        text = f"{section.locate(name)}: {section.pattern}: {text}"
        may_be_foreign = _is_general(section) and not find_similar(name, known, RESEMBLES)
        if only_ours or not may_be_foreign:
            raise ConfigurationError(text)
        notes.append(f"{text}, and no node here uses it")
    return notes


def _judge_unmatched(
    section: Section,
    nodes: Sequence[str],
    unserved: Sequence[str],
    namespace: str,
    only_ours: bool,
) -> str:
    """Refuse a section that is for none of the nodes, or describe it.

    `unserved` are the nodes that no section is for.
    """
    pattern = section.pattern
    name = pattern.removeprefix("/**/").removeprefix(namespace).strip("/")
    here = ", ".join(f"{namespace}{node}" for node in nodes)
    text = f"{section.place}: section {pattern} matches no node: here are {here}"
    for node in unserved:
        if posixpath.basename(node) == posixpath.basename(name):
            raise ConfigurationError(f"{text}; {_say_how(f'{namespace}{node}')}")
    if name in USUAL_NODES:
        return f"{text}; nothing uses it"
    known = [*nodes, *USUAL_NODES]
    form = "/**/{}" if pattern.startswith("/**/") else f"{namespace}{{}}"
    # One of these, in another namespace: of another robot that shares the file, or a mistake.
    elsewhere = posixpath.basename(name) in map(posixpath.basename, known)
    if not only_ours and (elsewhere or not find_similar(name, known, RESEMBLES)):
        return f"{text}; it is taken to be for a node that is started elsewhere"
    hint = suggest(name, known, form)
    if elsewhere:
        hint = suggest(posixpath.basename(name), nodes, form) or hint
    hint = hint or f"; add it to tasks or cameras of {PERCEPTION}, or remove it"
    other = "" if only_ours else " (A node of another program needs a file of its own.)"
    raise ConfigurationError(f"{text}{hint}{other}")


def _say_how(name: str) -> str:
    """How the section of a node is written, by the node's full name."""
    return f"did you mean {name}, or /**/{posixpath.basename(name)} for any namespace?"


def check_node(
    file: ParameterFile, name: str, parameters: Collection[str], usual: str
) -> list[str]:
    """Check the names in the files that one node alone is started with.

    Other nodes may share them, so a file has to have something for this one only where its
    sections are for one that is called almost so.

    Parameters
    ----------
    file : ParameterFile
        The files.
    name : str
        Full name of the node: ``/rear/detector``.
    parameters : collection of str
        Those that it has.
    usual : str
        Its name where nobody changes it: ``detector``.

    Returns
    -------
    list of str
        Files without a section for it.

    Raises
    ------
    ConfigurationError
        When the name of a parameter, or that of a section in its place, is misspelt.
    """
    matched = [section for section in file.sections if matches(section.pattern, name)]
    for section in matched:
        _check_own(section, parameters)
    served = [section for section in matched if not _is_general(section)]
    notes = []
    for path in dict.fromkeys(section.path for section in file.sections):
        sections = [one for one in file.sections if one.path == path and not _is_general(one)]
        if any(section in served for section in sections):
            continue
        general = [one.pattern for one in matched if one.path == path]
        if not served:
            _refuse_near(sections, name, "" if general else usual)
        base = posixpath.basename(name)
        if sections and (not served or any(_base(one) == base for one in sections)):
            there = ", ".join(section.pattern for section in sections)
            notes.append(
                f"{path} has no section for {name}, but for {there}: the node takes "
                f"{', '.join(general) or 'nothing'} of it; {_say_how(name)}"
            )
    return notes


def _base(section: Section) -> str:
    return posixpath.basename(section.pattern)


def _check_own(section: Section, parameters: Collection[str]) -> None:
    known = {*parameters, *(list_parameters() if _is_general(section) else ())}
    for parameter in section.values:
        if is_shared(parameter) or parameter in known:
            continue
        # The others in a section for nodes of any name are logged when the node is configured.
        if not _is_general(section) or find_similar(parameter, parameters, RESEMBLES):
            text = describe_unknown(parameter, parameters)
            raise ConfigurationError(f"{section.locate(parameter)}: {section.pattern}: {text}")


def _refuse_near(sections: Sequence[Section], name: str, usual: str) -> None:
    """Refuse a section for a node called almost as this one, to which no section applies.

    With `usual`, its usual name, one that is called exactly so, too: nothing else applies to it.
    """
    base = posixpath.basename(name)
    for section in sections:
        found = _base(section)
        is_misspelt = found not in (base, *USUAL_NODES) and find_similar(found, [base], RESEMBLES)
        if is_misspelt or (usual and found in (base, usual)):
            raise ConfigurationError(
                f"{section.place}: section {section.pattern} is not for this node, which is "
                f"{name}, and no other is; {_say_how(name)}"
            )


def _check_tasks(file: ParameterFile, tasks: Sequence[str], named: Sequence[str]) -> None:
    """Refuse a task without a section whose name is almost that of a usual one."""
    for task in tasks:
        base = posixpath.basename(task)
        # detector2 is a second detector.
        if task in named or base in TASKS or any(map(str.isdigit, base)):
            continue
        if meant := find_similar(base, TASKS, RESEMBLES):
            raise ConfigurationError(
                f"{file.path}: {PERCEPTION}: tasks: {task} has no section; did you mean {meant}? "
                f"A task of that name needs a section, as in /**/{task}: {{ros__parameters: {{}}}}"
            )
