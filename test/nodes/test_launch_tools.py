# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What the launch files start, from their arguments and the parameter file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("ament_index_python", reason="ament_index_python is missing: it is of ROS 2")

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.process.launch_tools import (
    SWITCHES,
    Process,
    check_arguments,
    find_params_file,
    find_trace_dir,
    has_package,
    is_true,
    read_graph,
    read_switches,
)

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SHIPPED = "config/perception.param.yaml"
TWO_CAMERAS = "examples/two_cameras.param.yaml"
NOT_GIVEN = {
    **dict.fromkeys(("namespace", "cameras", "tasks", "input_image_topic"), ""),
    **dict.fromkeys(("image_transport", "source", "model"), ""),
    **dict.fromkeys(("segmenter_model", "classifier_model"), ""),
    **dict.fromkeys(("engine_cache", "policy", "use_sim_time", "trace_dir"), ""),
    "params_file": str(ROOT / SHIPPED),
    "autostart": "true",
    "composed": "true",
    "record": "false",
}


def read(file=SHIPPED, above="", **arguments):
    arguments = {**NOT_GIVEN, "params_file": str(ROOT / file), **arguments}
    return read_graph(arguments, EXAMPLES, above)


def write(folder, text):
    file = folder / "params.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        *(("true", True), ("True", True), ("1", True), ("yes", True), ("ON", True)),
        *(("false", False), ("FALSE", False), ("0", False), ("no", False), ("off", False)),
    ],
)
def test_words_for_yes_and_no(text, meaning):
    assert is_true(text) is meaning


@pytest.mark.parametrize("text", ["", "maybe", "truee", " true"])
def test_other_words_are_refused(text):
    with pytest.raises(ValueError, match=f"true or false expected, not '{text}'"):
        is_true(text)


def test_packages_are_found_in_every_prefix(tmp_path, monkeypatch):
    marker = tmp_path / "b" / "share" / "ament_index" / "resource_index" / "packages" / "plots"
    marker.parent.mkdir(parents=True)
    marker.touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    assert has_package("plots")
    assert not has_package("other")


def test_a_launch_file_loads_no_node():
    program = "import sys, jetson_dnn_rt.nodes.process.launch_tools; print('rclpy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    assert answer.stdout.strip() == b"False"


@pytest.mark.parametrize(
    ("record", "trace_dir", "expected"),
    [
        ("false", "", ""),
        ("true", "", "/ros/jetson_dnn_rt"),
        ("true", "/data", "/data"),
        ("false", "/data", "/data"),
    ],
)
def test_where_jobs_are_traced(monkeypatch, record, trace_dir, expected):
    monkeypatch.setenv("ROS_HOME", "/ros")
    assert find_trace_dir({"record": record, "trace_dir": trace_dir}) == expected


def test_switches_are_read_alike_and_the_one_that_is_neither_is_named():
    words = dict(zip(SWITCHES, ("yes", "Off", "1", "true", "no", "FALSE"), strict=True))
    assert list(read_switches(words).values()) == [
        *("true", "false", "true", "true", "false", "false")
    ]
    with pytest.raises(ValueError, match="plot: true or false expected, not 'perhaps'"):
        read_switches({**words, "plot": "perhaps"})
    with pytest.raises(ValueError, match=r"record: .*a bag is recorded with record_bag:=NAME"):
        read_switches({**words, "record": "my_bag"})


KNOWN = ("source", "model", "composed")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sorce", "did you mean source?"),
        ("modell", "did you mean model?"),
        ("composd", "did you mean composed?"),
        ("xyz", "--show-args lists those that there are"),
    ],
)
def test_an_argument_that_the_launch_file_has_not_is_refused(name, hint):
    """Before, it was ignored, with exit code 0."""
    command = ["/opt/ros/x/bin/ros2", "launch", "jetson_dnn_rt", "a.launch.py", f"{name}:=1"]
    given = {**dict.fromkeys(KNOWN, ""), name: "1", "launch-prefix": "gdb"}
    with pytest.raises(ValueError, match=re.escape(f"a.launch.py has no argument {name}")) as e:
        check_arguments("a.launch.py", KNOWN, given, command)
    assert hint in str(e.value)


def test_an_including_file_may_have_arguments_of_its_own():
    command = ["ros2", "launch", "mine", "mine.launch.py", "robot:=1", "sorce:=2"]
    given = {**dict.fromkeys(KNOWN, ""), "robot": "1", "sorce": "2"}
    (note,) = check_arguments("a.launch.py", KNOWN, given, command)
    assert note == "a.launch.py has no argument sorce: it is ignored; did you mean source?"


def test_no_task_is_called_none():
    with pytest.raises(ValueError, match="none is no task"):
        read(tasks="none")


# -- the parameter file ---------------------------------------------------------------------------


def test_a_file_of_the_user_goes_before_one_of_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = Path(TWO_CAMERAS).name
    assert find_params_file(name, EXAMPLES) == EXAMPLES / name
    (tmp_path / name).touch()
    assert find_params_file(name, EXAMPLES) == Path(name)
    with pytest.raises(ConfigurationError, match=f"x.yaml is neither in {tmp_path} nor in "):
        find_params_file("x.yaml", EXAMPLES)


def test_what_completes_the_results_of_a_task(tmp_path):
    text = """
    /robot/perception:
      ros__parameters:
        tasks: [front/detector, front/segmenter, rear/lanes]
    /robot/rear/lanes:
      ros__parameters:
        kind: segmentation
        outputs: [da, ll]
    """
    graph = read(write(tmp_path, text), namespace="robot")
    assert graph.outputs["rear/lanes"] == [
        *("/robot/rear/da/class_mask", "/robot/rear/ll/class_mask")
    ]
    assert graph.companions == {
        "front/detector": ["/robot/front/instance_mask", "/robot/front/keypoints"],
        "front/segmenter": [],
        "rear/lanes": ["/robot/rear/da/label_info", "/robot/rear/ll/label_info"],
    }


@pytest.mark.parametrize("composed", ["true", "false"])
def test_without_arguments_everything_is_as_in_the_file(composed):
    for file in (SHIPPED, TWO_CAMERAS):
        graph = read(file, composed=composed)
        for node, values in graph.overrides.items():
            detached = {"camera": ""} if node in graph.tasks and composed == "false" else {}
            assert values == {"autostart": True, **detached}
    assert list(graph.cameras) == ["front/camera", "rear/camera"]
    tasks = ["front/detector", "rear/detector", "front/segmenter", "rear/segmenter"]
    assert list(graph.tasks) == tasks


def test_the_namespace_is_that_of_the_file_unless_one_is_given(tmp_path):
    text = """
    /robot/perception: {ros__parameters: {tasks: [lanes]}}
    /robot/lanes: {ros__parameters: {kind: segmentation}}
    """
    graph = read(write(tmp_path, text))
    assert graph.file.namespace == "/robot/"
    assert graph.outputs == {"lanes": ["/robot/class_mask"]}
    assert set(graph.sections) == {
        "/robot/camera",
        "/robot/coordinator",
        "/**/robot/lanes",
        "/**/robot/perception",
    }
    assert read(above="fleet", namespace="two").outputs["detector"] == ["/fleet/two/detections"]
    assert read(above="fleet", namespace="/two").file.namespace == "/two/"


def test_results_of_every_kind_have_their_topics(tmp_path):
    text = """
    perception: {ros__parameters: {tasks: [detector, front/classifier, lanes]}}
    lanes: {ros__parameters: {kind: segmentation, outputs: [da, "ll.0"]}}
    """
    graph = read(write(tmp_path, text), classifier_model="onnx:c.onnx")
    assert graph.outputs == {
        "detector": ["/detections"],
        "front/classifier": ["/front/classification"],
        "lanes": ["/da/class_mask", "/ll_0/class_mask"],
    }
    assert graph.overrides["front/classifier"]["model"] == "onnx:c.onnx"
    assert "model" not in graph.overrides["detector"]
    graph = read(write(tmp_path, text), composed="false")
    executables = {process.node: process.executable for process in graph.processes}
    assert executables["front/classifier"] == "classifier"
    assert executables["lanes"] == "detector"


# -- tasks and cameras ----------------------------------------------------------------------------


def test_the_sizes_of_the_pictures_are_those_of_cameras_and_of_tasks_on_topics(tmp_path):
    """The shared memory of what is started is as large as they need."""
    assert max(read().picture_sizes) <= (640, 480)
    own = write(
        tmp_path,
        "/**/camera: {ros__parameters: {width: 3840, height: 2160}}\n"
        "/**/detector: {ros__parameters: {image_width: 1920, image_height: 1080}}\n",
    )
    assert read(own, tasks="detector").picture_sizes == [(3840, 2160)]
    on_topic = read(own, tasks="detector", input_image_topic="/driver/image_raw")
    assert on_topic.picture_sizes == [(1920, 1080)]


def test_tasks_run_on_each_of_the_given_cameras():
    graph = read(cameras="front,rear/left")
    assert graph.cameras == ("front/camera", "rear/left")
    names = ["front/detector", "rear/detector", "front/segmenter", "rear/segmenter"]
    assert list(graph.tasks) == names
    assert [task.camera for task in graph.tasks.values()] == ["front/camera", "rear/left"] * 2
    assert graph.overrides["perception"] == {
        "autostart": True,
        "cameras": ["front/camera", "rear/left"],
        "tasks": names,
    }
    # Those that have a namespace stay where they are.
    graph = read(cameras="front,rear", tasks="detector, rear/segmenter")
    assert list(graph.tasks) == ["front/detector", "rear/detector", "rear/segmenter"]


def test_a_value_goes_to_those_it_is_for(tmp_path):
    text = """
    perception: {ros__parameters: {tasks: [a, rear/b, rear/c], cameras: [rear/camera]}}
    rear/c: {ros__parameters: {kind: segmentation}}
    """
    graph = read(
        write(tmp_path, text),
        model="null:1",
        segmenter_model="null:2",
        source="video:x.mp4",
        image_transport="compressed",
        engine_cache="/cache",
        policy="horizon",
        use_sim_time="true",
        autostart="false",
        trace_dir="/traces",
    )
    shared = {"autostart": False, "use_sim_time": True}
    task = {**shared, "image_transport": "compressed", "engine_cache": "/cache"}
    assert graph.overrides == {
        "perception": {**shared, "trace_dir": "/traces"},
        "rear/camera": {**shared, "source": "video:x.mp4"},
        "a": {**task, "model": "null:1"},
        "rear/b": {**task, "model": "null:1"},
        "rear/c": {**task, "model": "null:2"},
        "coordinator": {**shared, "policy": "horizon"},
    }
    assert graph.processes == [Process("perception")]


@pytest.mark.parametrize("arguments", [{"cameras": "none"}, {"input_image_topic": "/front/image"}])
@pytest.mark.parametrize("composed", ["true", "false"])
def test_cameras_that_run_elsewhere(arguments, composed):
    graph = read(TWO_CAMERAS, **arguments, composed=composed)
    assert graph.cameras == ()
    assert graph.overrides["perception"]["cameras"] == [""]
    assert {values.get("camera") for node, values in graph.overrides.items() if "or" not in node}
    assert all(graph.overrides[task]["camera"] == "" for task in graph.tasks)
    topic = arguments.get("input_image_topic")
    for process in graph.processes:
        assert dict(process.remappings).get("image_raw") == topic


# -- processes ------------------------------------------------------------------------------------


def test_each_task_has_a_process_and_its_camera_s_topic(tmp_path):
    text = """
    /**/perception:
      ros__parameters:
        cameras: [front/camera, rear/camera]
        tasks: [front/lanes, front/segmenter, detector, rear/detector]
        coordinator: true
    /**/front/lanes: {ros__parameters: {trace_dir: /traces}}
    /robot/detector: {ros__parameters: {camera: rear/camera, trace_dir: /traces}}
    /**: {ros__parameters: {policy: horizon}}
    """
    graph = read(write(tmp_path, text), composed="false", namespace="robot")
    assert graph.processes == [
        Process("camera", "front/camera"),
        Process("camera", "rear/camera"),
        Process("detector", "front/lanes"),
        Process(
            "segmenter",
            "front/segmenter",
            (("label_info", "segmenter/label_info"), ("debug_image", "segmenter/debug_image")),
        ),
        Process("detector", "detector", (("image_raw", "/robot/rear/image_raw"),)),
        Process("detector", "rear/detector"),
        Process("coordinator", "coordinator"),
    ]
    assert graph.overrides["coordinator"]["tasks"] == list(graph.tasks)
    # Two detectors must not write into one folder.
    assert graph.overrides["front/lanes"]["trace_dir"] == "/traces/front"
    assert graph.overrides["detector"]["trace_dir"] == "/traces"


def test_a_policy_starts_the_coordinator():
    names = [process.node for process in read(composed="false").processes]
    assert names == ["camera", "detector", "segmenter"]
    names = [process.node for process in read(composed="false", policy="horizon").processes]
    assert names == ["camera", "detector", "segmenter", "coordinator"]


# -- errors ---------------------------------------------------------------------------------------

_TASKS = "perception: {ros__parameters: {tasks: [TASKS], cameras: [camera, rear/camera]}}\n"


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        (
            "/**: {ros__parameters: }",
            {"cameras": "front", "input_image_topic": "/x"},
            "cameras and input_image_topic are",
        ),
        (
            "/**: {ros__parameters: }",
            {"cameras": "front/a,front/b"},
            "nodes: front/detector, front/segmenter appears twi",
        ),
        (
            "/**: {ros__parameters: }",
            {"autostart": "maybe"},
            "true or false expected, not 'maybe'",
        ),
        (
            _TASKS.replace("TASKS", "a, b"),
            {"composed": "false"},
            "tasks a and b both publish /detections; fix: where b does something else, set",
        ),
        (
            _TASKS.replace("TASKS", "a") + "a: {ros__parameters: {camera: left}}",
            {"composed": "false"},
            "params.yaml, line 2: a: there is no camera 'left', but camera, rear/camera",
        ),
        (_TASKS.replace("TASKS", "a, a"), {}, "params.yaml, line 1: perception: nodes: a"),
        (
            "/robot/perception: {ros__parameters: {workers: 2}}",
            {"namespace": "rover"},
            r"is for /robot/perception, but the node here is /rover/perception; fix: another",
        ),
        ("perception: 1", {}, "params.yaml: line 1: /perception must hold names of nodes"),
    ],
)
def test_what_cannot_be_started_is_refused(tmp_path, text, arguments, reason):
    with pytest.raises((ConfigurationError, ValueError), match=reason):
        read(write(tmp_path, text), **arguments)


# -- what rcl makes of it -------------------------------------------------------------------------

_EXACT = """
/robot/perception: {ros__parameters: {autostart: false, tasks: [other]}}
/**/front/detector: {ros__parameters: {model: "null:9", use_sim_time: false}}
/robot/front/detector: {ros__parameters: {model: "null:8"}}
"""
_ALL_FIRST = """
/**: {ros__parameters: {autostart: false, use_sim_time: false, model: "null:7", source: x}}
/robot/*/*: {ros__parameters: {model: "null:6", image_width: 320}}
"""
_ALL_LAST = """
/robot/front/detector: {ros__parameters: {model: "null:5"}}
/**/robot/front/detector: {ros__parameters: {model: "null:4"}}
/robot/**: {ros__parameters: {autostart: false, use_sim_time: false, model: "null:3", tasks: [x]}}
"""
_SHIPPED = (ROOT / SHIPPED).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "users",
    [_SHIPPED, _EXACT, _ALL_FIRST, _ALL_LAST],
    ids=["ours", "exact", "all first", "all last"],
)
def test_arguments_hold_above_every_section_of_the_users_file(ros, tmp_path, users):
    from rclpy.node import Node

    graph = read(
        write(tmp_path, users),
        namespace="robot",
        tasks="front/detector,front/lanes,segmenter",
        source="synthetic:320x240",
        model="null:2",
        segmenter_model="null:3,segmentation",
        policy="neuos_balanced",
        use_sim_time="true",
    )
    overrides = tmp_path / "overrides.yaml"
    overrides.write_text(yaml.safe_dump(graph.sections), encoding="utf-8")
    options = [text for file in (tmp_path / "params.yaml", overrides)
               for text in ("--params-file", str(file))]  # fmt: skip
    found = {}
    for name in ("perception", "camera", "coordinator", *graph.tasks):
        space, _, base = name.rpartition("/")
        node = Node(
            base,
            namespace=f"/robot/{space}".rstrip("/"),
            context=ros.context,
            cli_args=["--ros-args", *options],
            use_global_arguments=False,
            automatically_declare_parameters_from_overrides=True,
        )
        values = node.get_parameters_by_prefix("").items()
        found[name] = {key: parameter.value for key, parameter in values}
        node.destroy_node()
    for values in found.values():
        assert values["autostart"] is values["use_sim_time"] is True
    assert list(found["perception"]["tasks"]) == list(graph.tasks)
    assert found["camera"]["source"] == "synthetic:320x240"
    assert found["front/detector"]["model"] == found["front/lanes"]["model"] == "null:2"
    assert found["segmenter"]["model"] == "null:3,segmentation"
    assert found["coordinator"]["policy"] == "neuos_balanced"


def test_the_file_of_overrides_goes_with_the_launch(tmp_path):
    program = f"""
from pathlib import Path
from jetson_dnn_rt.nodes.process.launch_tools import read_graph
file = read_graph({NOT_GIVEN!r}, Path()).write_overrides()
print(file, Path(file).is_file())
raise RuntimeError("a launch that fails")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "a launch that fails" in done.stderr
    file, there = done.stdout.split()
    assert there == "True"
    assert not Path(file).exists()


def test_a_launch_does_without_numpy():
    code = "import sys, jetson_dnn_rt.nodes.process.launch_tools; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, "False\n")
