# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Scenario files: all shipped ones are usable, and errors name the file and the key."""

from __future__ import annotations

import pytest
import yaml
from worlds import laboratory, simulate_frames

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import (
    load_scenario,
    open_scenario,
    scenario_folder,
    scenario_names,
)

SCENARIOS = scenario_folder()


def write(tmp_path, text):
    path = tmp_path / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", scenario_names())
def test_shipped_scenarios_make_worlds(name):
    scenario = laboratory(name).scenario
    assert scenario.description
    world = laboratory(name).world(0, frames=5)
    assert any(task.arrivals for task in world.tasks)
    assert [task.parameters.name for task in world.tasks] == [task.name for task in scenario.tasks]


@pytest.mark.parametrize("path", sorted(SCENARIOS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_key_of_a_file_has_a_comment_above_it(path):
    """Xavier's board has the keys of the TX2's, and refers to it."""
    explained = path
    if path.stem == "xavier":
        explained = path.with_name("tx2.yaml")
        assert "Keys and units as in tx2.yaml" in path.read_text(encoding="utf-8")
    lines = explained.read_text(encoding="utf-8").splitlines()
    for key in yaml.safe_load(path.read_text(encoding="utf-8")):
        (place,) = [i for i, line in enumerate(lines) if line.startswith(f"{key}:")]
        assert key == "description" or lines[place - 1].startswith(("#", "description:")), key


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("board: ../../elsewhere/x\ntasks: [{network: alexnet}]", "board must be a name"),
        ("board: /etc/x\ntasks: [{network: alexnet}]", "board must be a name"),
        ("recording: {trace: ../elsewhere/x.parquet}", "must be in the folder of the scenario"),
        ("recording: {trace: /elsewhere/x.parquet}", "must be in the folder of the scenario"),
    ],
)
def test_a_scenario_leads_to_no_other_folder(tmp_path, text, words):
    """Campaign 8: nobody has named the files that a scenario from a stranger names."""
    with pytest.raises(ConfigurationError, match=words):
        load_scenario(write(tmp_path, text), (SCENARIOS,))


@pytest.mark.parametrize("board", ["tx2", "xavier"])
@pytest.mark.parametrize("size", [4, 8, 16])
def test_cohorts_have_a_worker_for_each_task(board, size):
    scenario = open_scenario(f"{board}_cohort{size}")
    assert len(scenario.tasks) == scenario.workers == len(scenario.interference) == size
    assert {task.network for task in scenario.tasks} == set(scenario.networks.networks)


@pytest.mark.parametrize(
    ("board", "deadlines_ms"), [("tx2", (10, 30, 150, 40)), ("xavier", (5, 10, 25, 30))]
)
def test_the_papers_deadlines(board, deadlines_ms):
    """Bateni & Liu 2020, section 5.1."""
    tasks = {task.network: task for task in open_scenario(f"{board}_cohort4").tasks}
    names = ("alexnet", "googlenet", "resnet50", "vgg16")
    assert tuple(tasks[name].deadline_ns / 1e6 for name in names) == deadlines_ms


VGG = "board: tx2\ntasks: [{network: vgg16}]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("board: tx2\n", "tasks or recording"),
        ("board: tx2\ntasks: []\n", "tasks or recording"),
        ("board: tx3\ntasks: [{network: alexnet}]\n", "board: there is no boards/tx3.yaml"),
        ("board: tx2\ntasks: [{network: lenet}]\n", "tasks[0].network must be one of alexnet"),
        ("board: tx2\ntasks: [{netwerk: alexnet}]\n", "tasks[0].netwerk is none of network"),
        ("board: tx2\ntasks: [{count: 2}]\n", "tasks[0].network is missing"),
        ("board: tx2\ntasks: {a: 1}\n", "tasks must be a list"),
        (f"{VGG}frames: many\n", "frames must be a whole number"),
        (f"{VGG}frames: true\n", "frames must be a whole number"),
        (f"{VGG}frames: 0\n", "frames must be >= 1: 0"),
        (f"{VGG}budget_quantile: 0.0\n", "budget_quantile must be in (0, 1]: 0.0"),
        (
            VGG.replace("}", ", deadline_ms: -1}"),
            "tasks[0].deadline_ms must be >= 0, 1e15 at most: -1",
        ),
        (VGG.replace("}", ", deadline_ms: 1.0e+308}"), "deadline_ms must be >= 0, 1e15 at most"),
        (VGG.replace("}", ", until_s: 1.0e+308}"), "until_s must be >= 0, 1e15 at most"),
        (VGG.replace("}", ", deadline_ms: .nan}"), "tasks[0].deadline_ms must be a number"),
        (VGG.replace("}", ", variant: half}"), "tasks[0].variant must be one of full"),
        (VGG.replace("}", ", camera: rear}"), "tasks[0].camera: there is no camera 'rear'"),
        (VGG.replace("}", "}, {network: vgg16}"), "several of the name"),
        (VGG.replace("}", ", count: 1000000}"), "tasks[0].count must be in [1, 1000]"),
        (VGG.replace("}", ", count: 600}, {network: alexnet, count: 600}"), "tasks: 1200, at "),
        (f"{VGG}workers: 1000000\n", "workers must be in [0, 1000]"),
        (
            f"{VGG}co_runners: [{{from_s: 2, until_s: 1, slowdown: 2}}]\n",
            "co_runners[0] until_s must be > from_s",
        ),
        ("[1, 2]\n", "must hold names with values"),
        ("board: [\n", "while parsing"),
    ],
)
def test_errors_name_the_file_and_the_key(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ConfigurationError) as raised:
        load_scenario(path, (SCENARIOS,))
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)


def test_an_error_in_a_board_names_the_board(tmp_path):
    board = (SCENARIOS / "boards/tx2.yaml").read_text(encoding="utf-8")
    (tmp_path / "boards").mkdir()
    path = tmp_path / "boards/mine.yaml"
    path.write_text(board.replace("static_w: 0.6, dynamic_w: 9.0", "static_w: -0.6, dynamic_w: 9"))
    scenario = write(tmp_path, "board: mine\ntasks: [{network: vgg16}]\n")
    with pytest.raises(ConfigurationError, match=r"mine\.yaml: power\.gpu\.static_w must be >= 0"):
        load_scenario(scenario, (SCENARIOS,))


def test_a_cap_on_a_clock_that_the_board_lacks(tmp_path):
    text = (SCENARIOS / "tx2_thermal.yaml").read_text(encoding="utf-8").replace("gpu:", "dla:")
    scenario = load_scenario(write(tmp_path, text), (SCENARIOS,))
    with pytest.raises(ConfigurationError, match="tx2 has no domain 'dla'"):
        Laboratory(scenario).world(0, frames=5)


def test_tasks_on_one_camera_are_released_together(tmp_path):
    text = (
        "board: tx2\ncameras: {front: {period_ms: 50.0, jitter_ms: 3.0, offset_ms: 1.0}}\n"
        "tasks: [{network: alexnet, camera: front}, {network: vgg16, camera: front}]\n"
    )
    world = Laboratory(load_scenario(write(tmp_path, text), (SCENARIOS,))).world(0, frames=20)
    first, second = (task.arrivals for task in world.tasks)
    assert first == second
    late = [release - 1_000_000 - 50_000_000 * index for release, _, index in first]
    assert all(0 <= jitter <= 3_000_000 for jitter in late)
    assert len(set(late)) > 10


def test_a_load_step_brings_frames_only_meanwhile():
    for task in laboratory("tx2_load_step").world(0).tasks:
        releases_s = [release / 1e9 for release, _, _ in task.arrivals]
        if task.parameters.name.startswith("extra"):
            assert 6.0 <= releases_s[0] < 6.2
            assert 13.7 < releases_s[-1] < 14.0
        else:
            assert releases_s[0] < 0.21
            assert releases_s[-1] > 19.7


def test_networks_run_narrow_beside_each_other_where_the_scenario_says_how_slow_that_is(tmp_path):
    """With a thread for it, and more frames than wide networks one after the other can do."""
    task = "network: resnet50, period_ms: 100, deadline_ms: 1000"
    text = f"board: tx2\nworkers: 1\ntasks: [{{{task}, name: a}}, {{{task}, name: b}}]\n"
    narrow = text.replace(", name", ", narrow: 1.5, name")
    for content, expected in (
        (narrow + "helpers: 1\n", True),
        (narrow, False),
        (text + "helpers: 1\n", False),
    ):
        source = Laboratory(load_scenario(write(tmp_path, content), (SCENARIOS,)))
        frames = simulate_frames(source, "static", frames=60)
        assert any(frame.record.narrow for frame in frames) == expected
