# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Misspelt names in parameter files and overrides, and those that are somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetson_dnn_rt.config.checked_names import (
    check_names,
    check_node,
    describe_unknown,
    list_parameters,
)
from jetson_dnn_rt.config.parameter_file import read_parameter_file, read_parameter_files
from jetson_dnn_rt.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]


def section(name, values="a: 1"):
    return f"{name}: {{ros__parameters: {{{values}}}}}\n"


BOTH = section("/**/detector", "stages: 1") + section("/**/segmenter", "stages: 1")


@pytest.fixture
def check(tmp_path):
    def check(text, overrides=None, **options):
        path = tmp_path / "p.yaml"
        path.write_text(text)
        return check_names(read_parameter_file(path), overrides, **options)

    return check


@pytest.mark.parametrize("only_ours", [True, False])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (section("/**/detektor"), r"p.yaml, line 1: section /\*\*/detektor matches no node: here "
         r"are /perception, .*; did you mean /\*\*/detector\?"),
        (section("segmentor"), "did you mean /segmenter"),
        (section("/**/detector", "dedline_ms: 4"), "line 1: .*detector: there is no parameter "
         "dedline_ms; did you mean deadline_ms"),
        ("/**/detector:\n  ros__parameters:\n    stages: 1\n    preprocessing:\n      colour: rgb",
         "line 5: .*preprocessing.colour; did you mean preprocessing.color"),
        (section("camera", "color: rgb"), "no parameter color; docs/parameters.md lists"),
        (section("detector", "color: rgb"), "did you mean preprocessing.color"),
        (section("/**", "confidence_treshold: 1"), "did you mean confidence_threshold"),
        (section("perception", "tasks: [detector, detecter]") + section("detector", "stages: 1"),
         "detecter has no section; did you mean detector"),
        (section("perception", "tasks: [segmentor]"), "did you mean segmenter"),
        (section("perception", "worker: 2"), "did you mean workers"),
        (section("coordinator", "polcy: static"), "did you mean policy"),
    ],
)  # fmt: skip
def test_misspelt_names_are_refused(check, text, message, only_ours):
    with pytest.raises(ConfigurationError, match=message):
        check(text, only_ours=only_ours)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (section("/**/local_costmap/local_costmap", "plugins: [x]"), "matches no node"),
        (section("/other/detector", "model: x"), "started elsewhere"),
        (section("/**/lanes", "kind: segmentation"), "/**/lanes matches no node"),
        (section("/**", "their_own: 1"), "no parameter their_own"),
    ],
)
def test_names_of_others_are_noted_unless_the_file_is_only_for_these_nodes(check, text, words):
    (note,) = check(BOTH + text)
    assert "p.yaml, line 3: " in note
    assert words in note
    with pytest.raises(ConfigurationError, match="line 3"):
        check(BOTH + text, only_ours=True)


@pytest.mark.parametrize(
    "text",
    [
        section("/**", "use_sim_time: true, start_type_description_service: true"),
        section("/**", "deadline_ms: 40, policy: static, source: synthetic, autostart: true"),
        section("/*", "stages: 1"),
        section("detector", "qos_overrides: {/detections: {publisher: {depth: 1}}}, workers: 2"),
        section("camera", "realtime.sched_fifo: true"),
    ],
)  # fmt: skip
def test_what_is_allowed(check, text):
    assert check(text + BOTH, only_ours=True) == []


def test_shipped_files_have_no_misspelt_name():
    assert check_names(read_parameter_file(ROOT / "config/perception.param.yaml")) == []
    assert check_names(read_parameter_file(ROOT / "examples/two_cameras.param.yaml")) == []
    (note,) = check_names(read_parameter_file(ROOT / "examples/nav2.param.yaml"))
    assert "/local_costmap/local_costmap" in note


def test_a_numbered_task_needs_no_section(check):
    text = section("perception", "tasks: [detector, rear/detector2]")
    assert check(text + section("detector", "stages: 1")) == []


def test_a_usual_node_that_does_not_run_is_noted(check):
    (note,) = check(section("perception", "tasks: [detector]") + BOTH, only_ours=True)
    assert "section /**/segmenter matches no node" in note
    # An option that leaves it out is no mistake in the file.
    assert check(BOTH, {"perception": {"tasks": ["detector"]}}, only_ours=True) == []


def test_a_task_that_the_file_does_not_name_runs_too(check):
    (note,) = check(section("/**/detector", "stages: 2"), only_ours=True)
    assert note.startswith("segmenter runs, too, with its defaults")
    assert "tasks: [detector] in the section /**/perception" in note
    assert check(section("/**/detector", "stages: 2"), {"segmenter": {"stages": 1}}) == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"detektor": {}}, "no node detektor here, but perception, .*; did you mean detector"),
        ({"detector": {"dedline_ms": 1}}, "detector: .* dedline_ms; did you mean deadline_ms"),
        ({"perception": {"tasks": ["detecter"]}}, "did you mean detector"),
    ],
)
def test_misspelt_overrides_are_refused(check, overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        check(section("/**", "stages: 1"), overrides)


def test_a_section_for_another_namespace_is_refused_where_only_one_is_there(check):
    with pytest.raises(ConfigurationError, match=r"/robot/perception matches .* mean /perception"):
        check(section("/robot/perception", "workers: 2"), only_ours=True, namespace="/")
    assert check(section("/robot/perception", "workers: 2")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "detector:\n\tros__parameters: {}",
            "p.yaml, line 2: a tab: YAML is indented with spaces",
        ),
        ("a: [1, 2", "p.yaml, line 1: expected ',' or ']'"),
        (
            "detector: {ros_parameters: {stages: 1}}",
            "ros_parameters; did you mean ros__parameters",
        ),
        ("detector: {stages: 1}", r"written NODE: \{ros__parameters: \{NAME: VALUE"),
        ("# nothing", "is empty: it must hold names of nodes"),
    ],
)
def test_the_form_of_a_file_is_explained(check, text, message):
    with pytest.raises(ConfigurationError, match=message):
        check(text)


# -- a file for nodes of this name elsewhere ------------------------------------------------


def test_a_section_for_a_node_in_another_namespace_is_refused(check):
    """Before, the demonstration network ran instead, with a warning."""
    text = section("detector", "model: x")
    message = r"matches no node.*did you mean /front/detector, or /\*\*/detector"
    with pytest.raises(ConfigurationError, match=message):
        check(text, namespace="/front/")
    # It has a section of its own: the other one is another robot's.
    (note,) = check(text + section("front/detector") .replace("a: 1", "stages: 1")
                    + section("/**/segmenter", "stages: 1"), namespace="/front/")  # fmt: skip
    assert "section /detector matches no node" in note


def test_what_a_later_file_leaves_out_is_no_mistake_in_the_first(tmp_path):
    """Before, the launch file's own overrides made the shipped file look wrong."""
    theirs, ours = tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    theirs.write_text(BOTH + section("/**/camera", "seed: 2"))
    ours.write_text(section("/perception", "tasks: [detector], cameras: ['']"))
    assert check_names(read_parameter_files([theirs, ours])) == []


# -- a node alone ---------------------------------------------------------------------------


@pytest.fixture
def check_alone(tmp_path):
    def check(name, *texts):
        paths = [tmp_path / f"p{number}.yaml" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return check_node(read_parameter_files(paths), name, ["stages", "model"], "detector")

    return check


MODEL = "model: onnx:x.onnx"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("/front/detector", section("detector", MODEL),
         r"p0.yaml, line 1: section /detector is not for this node, which is /front/detector, .*"
         r"did you mean /front/detector, or /\*\*/detector for any namespace"),
        ("/det2", section("detector", MODEL), r"which is /det2, .*or /\*\*/det2"),
        ("/detector", section("/**/detektor", MODEL), r"/\*\*/detektor is not for this node"),
        ("/detector", section("/**", MODEL) + section("detektor", MODEL), "line 2: .*detektor"),
        ("/detector", section("detector", "modell: x"), "line 1: .* did you mean model"),
        ("/detector", section("/**", "modell: x"), "did you mean model"),
    ],
)  # fmt: skip
def test_a_section_that_is_not_for_the_node_alone_is_refused(check_alone, name, text, message):
    """Before, the demonstration network ran without a word."""
    with pytest.raises(ConfigurationError, match=message):
        check_alone(name, text)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("/detector", [section("/**", MODEL)]),
        ("/detector", [section("detector", MODEL) + section("segmenter", "their_own: 1")]),
        ("/front/detector", [section("/*/detector", MODEL) + section("/rear/detector", MODEL)]),
        ("/detector", [section("/**", "policy: static, their_own: 1")]),
        ("/det2", [section("det2", MODEL) + section("det1", MODEL)]),
        ("/det2", [section("camera", "seed: 1"), section("det2", MODEL)]),
    ],
)
def test_files_that_other_nodes_share_are_no_mistake(check_alone, name, texts):
    assert check_alone(name, *texts) == []


@pytest.mark.parametrize(
    ("name", "texts", "words"),
    [
        ("/detector", [section("camera", "seed: 1")], "takes nothing of it"),
        ("/det2", [section("/**", MODEL) + section("detector", MODEL)], r"takes /** of it"),
        ("/front/detector", [section("/**/detector", MODEL), section("detector", "stages: 2")],
         "p1.yaml has no section for /front/detector, but for /detector"),
    ],
)  # fmt: skip
def test_a_file_without_a_section_for_the_node_alone_is_noted(check_alone, name, texts, words):
    (note,) = check_alone(name, *texts)
    assert words in note


def test_parts_of_a_list_come_with_its_form():
    """``class_thresholds: {car: 0.5}`` in a file is a parameter ``class_thresholds.car``."""
    known = list_parameters("task")
    text = describe_unknown("class_thresholds.car", known)
    assert text.endswith('; class_thresholds is a list: write class_thresholds: ["car=VALUE"]')
    assert describe_unknown("labels.0", known).endswith("; labels is a list: write labels: [a, b]")
    assert "did you mean" in describe_unknown("preprocessing.colour", known)
