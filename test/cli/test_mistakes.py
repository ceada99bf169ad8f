# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Mistakes of users: one message, which names the thing and says the fix, before models load.

A row is a command line, its exit code, what the message names, and the fix in it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from constant_networks import make_constant_onnx
from onnx import TensorProto, helper

from jetson_dnn_rt.backends import openvino
from jetson_dnn_rt.backends.tensorrt import api
from jetson_dnn_rt.cli.main import main

pytest.importorskip("rclpy")
pytest.importorskip("vision_msgs.msg")

SHIPPED = Path(__file__).resolve().parents[2] / "config" / "perception.param.yaml"

# What begins the message of an error, in the logs of ROS, of Python, and at the end of a command.
ERROR = re.compile(
    r"^\[(ERROR|FATAL)\]|^(ERROR|CRITICAL) |^jetson-dnn-rt.*: error: ", re.MULTILINE
)

YAML = {
    "tab": "detector:\n\tros__parameters: {}\n",
    "empty": "# nothing\n",
    "section": "/**/detektor: {ros__parameters: {stages: 1}}\n",
    "key": "/**/detector:\n  ros__parameters:\n    stages: 1\n    dedline_ms: 50.0\n",
    "tasks": "perception: {ros__parameters: {tasks: [detector, detecter]}}\n",
    "values": "detector: {ros_parameters: {stages: 1}}\n",
    "range": "detector:\n  ros__parameters:\n    confidence_threshold: 1.5\n",
    "type": "# first\ndetector: {ros__parameters: {stages: two}}\n",
    "choice": "/**/detector: {ros__parameters: {\n  late_results: publsh}}\n",
    "group": "detector:\n  ros__parameters:\n    preprocessing:\n      mean: [0.5]\n",
    "later": "/**: {ros__parameters: {stages: 1}}\ndetector: {ros__parameters: {stages: 99}}\n",
    "cores": "perception:\n  ros__parameters:\n    realtime.cpu_affinity: [4096]\n",
    "source": "camera: {ros__parameters: {\n  source: vidoe:x.mp4}}\n",
    "model": "detector:\n  ros__parameters: {\n    model: model.onnx}\n",
    "no_model": "detector:\n  ros__parameters:\n    model: onnx:no.onnx\n",
    "variant": "detector:\n  ros__parameters:\n    variants: [full@opnvino-fp32]\n",
    "head": "detector:\n  ros__parameters:\n    model: null:1\n    head: yolo5\n",
    "classes": "detector:\n  ros__parameters:\n    classes: [unicorn]\n",
    "no_lists": "detector:\n  ros__parameters:\n    amp_lists: no.yaml\n",
    "no_info": "camera: {ros__parameters: {\n  camera_info_url: no.yaml}}\n",
    "foreign": "/**/lidar: {ros__parameters: {rings: 64}}\n",
    "robot": "/robot/detector: {ros__parameters: {stages: 1}}\n",
}

HEADS = """
class Broken:
    kind = "detection"

    def __init__(self, network):
        raise KeyError("anchors")


class NoKind:
    pass
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with what users have, and mistake for something else."""
    folder = tmp_path_factory.mktemp("files")
    for name, text in YAML.items():
        (folder / f"{name}.yaml").write_text(text)
    for name in ("notes.txt", "model.onnx", "clip.mp4"):
        (folder / name).write_text("neither a model nor a video\n")
    (folder / "my_heads.py").write_text(HEADS)
    for name in ("photos", "empty"):
        (folder / name).mkdir()
    cv2.imwrite(str(folder / "photos" / "a.png"), np.zeros((96, 128, 3), np.uint8))
    path = folder / "factor.onnx"
    make_constant_onnx(path, {"logits": np.zeros((1, 5, 8, 8), np.float32)})
    import onnx

    model = onnx.load(str(path))
    model.graph.input.append(helper.make_tensor_value_info("factor", TensorProto.FLOAT, (2,)))
    onnx.save(model, str(path))
    return folder


@pytest.fixture(autouse=True)
def there(files, monkeypatch):
    monkeypatch.chdir(files)
    monkeypatch.syspath_prepend(str(files))


def run(*arguments, detector="null:1"):
    start = ("run", "--source", "synthetic:128x96", "--frames", "2", "--segmenter", "none")
    freeze = ("--set", "perception.realtime.gc_freeze=false")
    return [*start, *freeze, "--detector", detector, *arguments]


def put(setting, detector="null:1"):
    return run("--set", setting, detector=detector)


def plain(*arguments):
    """Without a model on the command line, so that the file's counts."""
    return [one for one in run(*arguments) if one not in ("--detector", "null:1")]


def look(*arguments, model="null:1"):
    return ["inspect", model, *arguments]


def fit(frames):
    model = ("--model", "builtin:detector", "--ranks", "macs:0.5")
    return ["compress", *model, "--frames", frames, "--output", "small"]


ROWS = {
    # -- models
    "missing model": (run(detector="onnx:no.onnx"), 2, "no.onnx", "correct the path"),
    "text as ONNX": (["inspect", "onnx:notes.txt"], 1, "notes.txt", "export the network"),
    "model without prefix": (run(detector="model.onnx"), 2, "'model.onnx'", "onnx:model.onnx"),
    "weights as model": (run(detector="yolo.pt"), 2, "'yolo.pt'", "export it to ONNX"),
    "misspelt built-in": (["inspect", "builtin:detektor"], 2, "detektor", "builtin:detector"),
    "model of another task": (
        *(run(detector="null:1,segmentation"), 2),
        *("null:1,segmentation", "set kind to segmentation"),
    ),
    "weights of a built-in": (put("detector.weights=w.pth"), 2, "weights", "torchvision: models"),
    # -- sources
    "video without prefix": (run("--source", "clip.mp4"), 2, "'clip.mp4'", "video:clip.mp4"),
    "folder without prefix": (run("--source", "photos"), 2, "'photos'", "images:photos"),
    "misspelt prefix": (run("--source", "vidoe:x.mp4"), 2, "'vidoe:x.mp4'", "mean video:x.mp4"),
    "device without prefix": (run("--source", "/dev/video7"), 2, "video7", "device:/dev/video7"),
    "missing video": (run("--source", "video:no.mp4"), 2, "no.mp4", "the path of a video"),
    "text as video": (fit("video:notes.txt"), 1, "notes.txt", "ffmpeg"),
    "missing folder": (fit("images:no"), 1, "images: no", "give a folder"),
    "file as folder": (fit("images:notes.txt"), 1, "notes.txt is a file", "folder"),
    "empty folder": (fit("images:empty"), 1, "empty holds no image", "must end in"),
    "bag as source": (run("--source", "bag:drive"), 2, "'bag:drive'", "evaluate drive"),
    # -- parameter files
    "missing file": (run("--params", "no.yaml"), 2, "no.yaml", "does not exist"),
    "folder as file": (run("--params", "photos"), 2, "photos", "give a YAML file"),
    "tab": (run("--params", "tab.yaml"), 2, "tab.yaml, line 2", "indented with spaces"),
    "empty file": (run("--params", "empty.yaml"), 2, "empty.yaml", "must hold names of nodes"),
    "misspelt section": (
        *(run("--params", "section.yaml"), 2),
        *("section.yaml, line 1: section /**/detektor", "did you mean /**/detector?"),
    ),
    "misspelt key": (
        *(run("--params", "key.yaml"), 2),
        *("key.yaml, line 4: /**/detector: there is no parameter dedline_ms", "mean deadline_ms?"),
    ),
    "misspelt task": (run("--params", "tasks.yaml"), 2, "detecter", "did you mean detector?"),
    "misspelt values": (run("--params", "values.yaml"), 2, "ros_parameters", "ros__parameters?"),
    "section of others": (run("--params", "foreign.yaml"), 2, "/**/lidar", "or remove it"),
    "other namespace": (run("--params", "robot.yaml"), 2, "/robot/detector", "mean /detector, or"),
    "out of range": (
        *(run("--params", "range.yaml"), 2),
        *("range.yaml, line 3: detector: confidence_threshold", "in [0, 1]: 1.5"),
    ),
    "wrong type": (
        *(run("--params", "type.yaml"), 2),
        *("type.yaml, line 2: detector: stages", "whole number"),
    ),
    "unknown choice": (
        *(run("--params", "choice.yaml"), 2),
        *("choice.yaml, line 2: detector: late_results", "did you mean publish?"),
    ),
    "value in a group": (
        *(run("--params", "group.yaml"), 2),
        *("group.yaml, line 4: detector: preprocessing.mean", "three values"),
    ),
    "value in the later section": (
        *(run("--params", "later.yaml"), 2),
        *("later.yaml, line 2: detector: stages", "in [0, 64]: 99"),
    ),
    "value of the process": (
        *(run("--params", "cores.yaml"), 2),
        *("cores.yaml, line 3: perception: cpu_affinity", "[4096]"),
    ),
    "source of a file": (
        *(["run", "--params", "source.yaml"], 2),
        *("source.yaml, line 2: camera: unknown source", "mean video:x.mp4"),
    ),
    "model of a file": (
        *(plain("--params", "model.yaml"), 2),
        *("model.yaml, line 3: detector: model 'model.onnx'", "onnx:model.onnx"),
    ),
    "missing model of a file": (
        *(plain("--params", "no_model.yaml"), 2),
        *("no_model.yaml, line 3: task detector: model file no.onnx", "correct the path"),
    ),
    "variant of a file": (
        *(plain("--params", "variant.yaml"), 2),
        *("variant.yaml, line 3: detector: variant full@opnvino-fp32", "did you mean openvino?"),
    ),
    "head of a file": (
        *(plain("--params", "head.yaml"), 2),
        *("head.yaml, line 4: task detector: null:1: head 'yolo5'", "did you mean yolov5?"),
    ),
    "class of a file": (
        *(plain("--params", "classes.yaml"), 2),
        *("classes.yaml, line 3: task detector: classes: the model has no class", "car, truck"),
    ),
    "lists of a file": (
        *(plain("--params", "no_lists.yaml"), 2),
        *("no_lists.yaml, line 3: task detector: colours of operators: no.yaml", "amp_lists"),
    ),
    "lists for build": (
        *(["build", "--params", "no_lists.yaml", "--task", "detector"], 2),
        *("no_lists.yaml, line 3: detector: colours of operators: no.yaml", "amp_lists"),
    ),
    "calibration of a file": (
        *(plain("--params", "no_info.yaml"), 2),
        *("no_info.yaml, line 2: camera camera: ", "give a YAML"),
    ),
    # -- options
    "misspelt parameter": (
        *(put("detector.confidence_treshold=0.4"), 2),
        *("confidence_treshold", "did you mean confidence_threshold?"),
    ),
    "misspelt task of a setting": (put("detektor.stages=2"), 2, "detektor", "mean detector?"),
    "setting out of range": (put("detector.stages=99"), 2, "detector: stages", "in [0, 64]: 99"),
    "text for a list": (put("detector.labels=coco80"), 2, "detector: labels", '["coco80"]'),
    "mapping for a list": (put("detector.class_thresholds={car: 1}"), 2, "class_t", '["car=1"]'),
    "class of no name": (put("detector.classes=[cars]"), 2, "'cars'", "no names: set labels"),
    "input size of one side": (put("detector.input_size=[320]"), 2, "input_size", "width]"),
    "misspelt policy": (put("coordinator.policy=horizn"), 2, "policy", "did you mean horizon?"),
    "deadline of no task": (run("--deadline", "lidar=40"), 2, "lidar", "but perception, camera"),
    "deadline below 0": (run("--deadline", "detector=-1"), 2, "--deadline", "a number above 0"),
    "deadline of nothing": (run("--deadline", "40"), 2, "--deadline", "the form NAME=VALUE"),
    "no frames": (run("--frames", "0"), 2, "--frames", "a whole number above 0"),
    "duration below 0": (["run", "--seconds", "-1"], 2, "--seconds", "a number above 0"),
    "rate": (run("--rate", "fast"), 2, "--rate", "a number above 0"),
    "trace limit": (run("--trace-limit-mb", "-1"), 2, "--trace-limit-mb", "0 to 1000000"),
    "other camera": (put("detector.camera=rear"), 2, "camera 'rear'", "(there: camera)"),
    "camera's calibration": (put("camera.camera_info_url=no.yaml"), 2, "no.yaml", "give a YAML"),
    # -- variants
    "precision alone": (run("--variant", "detector=int8"), 2, "'int8'", "full@openvino-int8"),
    "misspelt back end": (
        *(run("--variant", "detector=full@opnvino-fp32"), 2),
        *("full@opnvino-fp32", "did you mean openvino?"),
    ),
    "misspelt precision": (
        *(run("--variant", "detector=full@openvino-fp23"), 2),
        *("full@openvino-fp23", "did you mean fp32?"),
    ),
    "share out of range": (
        *(run("--variant", "detector=tucker-2@torch-fp32"), 2),
        *("'tucker-2'", "as 0.50"),
    ),
    "int8 on torch": (
        *(run("--variant", "detector=full@torch-int8", detector="builtin:detector"), 2),
        *("torch", "use torch-fp32, as in full@torch-fp32"),
    ),
    # -- heads, labels, classes
    "misspelt head": (put("detector.head=yolo5"), 2, "'yolo5'", "did you mean yolov5?"),
    "head of no module": (look("--head", "nowhere:Head"), 2, "nowhere", "PYTHONPATH"),
    "head of no class": (look("--head", "my_heads:Brokn"), 2, "Brokn", "did you mean Broken?"),
    "head without a kind": (look("--head", "my_heads:NoKind"), 2, "NoKind", "a class with a `"),
    "head that fails": (
        *(put("detector.head=my_heads:Broken"), 2),
        *("KeyError: 'anchors'", "my_heads.py, line 6); correct it there"),
    ),
    "missing labels": (put("detector.labels=[no.txt]"), 2, "no.txt", "with a name per line"),
    "unknown class": (
        *(put("detector.classes=[unicorn]", "builtin:detector"), 2),
        *("'unicorn'", "one of car, truck"),
    ),
    "constant of no input": (
        *(look("--constant-inputs", "fctor=1", model="onnx:factor.onnx"), 2),
        *("'fctor'", "there are: factor"),
    ),
    "constant that is no number": (
        *(look("--constant-inputs", "factor=[1, two]", model="onnx:factor.onnx"), 2),
        *("factor=[1, 'two'] is no value for", "or a list of 2"),
    ),
    # -- outputs
    "file as output folder": (run("--output", "notes.txt"), 2, "notes.txt", "another folder"),
    "folder as results": (run("--results", "photos"), 2, "photos", "photos/found.jsonl"),
    "file as library": (
        *(["build", "--params", str(SHIPPED), "--engine-cache", "notes.txt"], 2),
        *("notes.txt", "not a folder"),
    ),
    # -- other commands
    "missing bag": (["evaluate", "drive"], 2, "drive", "is not there"),
    "text as bag": (["evaluate", "notes.txt"], 1, "notes.txt", "neither SQLite, MCAP nor a bag"),
    "key for evaluate": (
        *(["evaluate", "notes.txt", "--params", "key.yaml"], 2),
        *("dedline_ms", "did you mean deadline_ms?"),
    ),
    "value for evaluate": (
        *(["evaluate", "notes.txt", "--params", "range.yaml"], 2),
        *("range.yaml, line 3: detector: confidence_threshold", "in [0, 1]: 1.5"),
    ),
    "variant for evaluate": (
        *(["evaluate", "notes.txt", "--params", "variant.yaml"], 2),
        *("variant.yaml, line 3: detector: variant full@opnvino-fp32", "did you mean openvino?"),
    ),
    "value for build": (
        *(["build", "--params", "type.yaml"], 2),
        *("type.yaml, line 2: detector: stages", "whole number"),
    ),
    "model for build": (
        *(["build", "--params", "model.yaml"], 2),
        *("model.yaml, line 3: detector: model 'model.onnx'", "onnx:model.onnx"),
    ),
    "variant for build": (
        *(["build", "--params", "variant.yaml"], 2),
        *("variant.yaml, line 3: detector: variant full@opnvino-fp32", "did you mean openvino?"),
    ),
    "section for build": (["build", "--params", "section.yaml"], 2, "detektor", "/**/detector?"),
    "task for build": (
        *(["build", "--params", str(SHIPPED), "--task", "detektor"], 2),
        *("detektor", "did you mean detector?"),
    ),
    "frames without prefix": (
        *(fit("photos"), 2),
        *("'photos'", "did you mean images:photos?"),
    ),
    "frames that are not there": (
        *(fit("nowhere"), 2),
        *("'nowhere' are no file or folder that exists", "images:DIR"),
    ),
    "model to inspect": (["inspect", "model.onnx"], 2, "'model.onnx'", "mean onnx:model.onnx?"),
    "trace for wcet": (["wcet", "nowhere"], 2, "nowhere", "give what --output of run"),
    "file as library to list": (["library", "list", "--engine-cache", "notes.txt"], 2, "notes.txt",
                                "not a folder"),
    "scenario": (["simulate", "--scenario", "tx3", "--policy", "static"], 2, "tx3", "tx2_cohort4"),
    "misspelt command": (["rnu"], 2, "'rnu'", "choose from 'run'"),
}  # fmt: skip


def check(code, text, expected, named, fix):
    assert code == expected
    assert "Traceback" not in text
    assert len(ERROR.findall(text)) == 1, text
    message = text[ERROR.search(text).end() :].strip()
    assert "\n" not in message, text  # the last line
    assert named in message
    assert fix in message
    # Said once, not by a log as well.
    assert text.count(message[-60:]) == 1, text


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_mistake_is_one_message_with_its_fix(row, capfd):
    arguments, *expected = row
    try:
        code = main(arguments)
    except SystemExit as ended:  # by argparse
        code = ended.code
    check(code, capfd.readouterr().err, *expected)


@pytest.mark.parametrize("file", ["range", "no_model", "classes"])
def test_a_value_of_the_command_line_has_no_line_in_the_file(file, capfd):
    settings = {
        "range": "confidence_threshold=1.7",
        "no_model": "model=onnx:nowhere.onnx",
        "classes": "classes=[griffin]",
    }
    arguments = plain("--params", f"{file}.yaml", "--set", f"detector.{settings[file]}")
    assert main(arguments) == 2
    text = capfd.readouterr().err
    message = text[ERROR.search(text).end() :]
    assert "detector: " in message
    assert ".yaml" not in message


@pytest.mark.parametrize("name", ["missing model", "misspelt section", "no frames"])
def test_so_it_is_in_a_process_of_its_own(name):
    arguments, *expected = ROWS[name]
    command = [sys.executable, "-m", "jetson_dnn_rt.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    check(done.returncode, done.stderr, *expected)
    assert done.stdout == ""


def test_a_cpu_without_bf16_is_told_the_fp32_form(monkeypatch, capfd):
    monkeypatch.setattr(openvino, "supports_bf16", lambda: False)
    variant = ("--variant", "detector=full@openvino-bf16")
    code = main(run(*variant, detector="builtin:detector"))
    check(code, capfd.readouterr().err, 2, "not in bf16", "as in full@openvino-fp32")


def test_without_a_gpu_nobody_is_told_to_install_tensorrt(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setattr(api, "has_gpu", lambda: False)
    variant = ("--variant", "detector=full@tensorrt-fp16")
    code = main(run(*variant, detector="builtin:detector"))
    text = capfd.readouterr().err
    check(code, text, 2, "TensorRT needs an NVIDIA GPU", "use full@")
    assert "install" not in text


def test_a_folder_for_the_results_is_made_and_named(files, tmp_path, caplog):
    caplog.set_level("INFO")
    file = tmp_path / "a" / "b" / "found.jsonl"
    assert main(run("--results", str(file))) == 0
    assert len(file.read_text().splitlines()) == 2
    assert caplog.text.count(f"made the folder {file.parent}") == 1


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        (["--detector", "null:2"], "--segmenter none"),
        (["--set", "detector.model=null:2"], "--segmenter none"),
        (["--segmenter", "null:2,segmentation"], "--detector none"),
        (["--detector", "null:2", "--segmenter", "null:2,segmentation"], ""),
        (["--detector", "null:2", "--segmenter", "none"], ""),
        (["--detector", "null:2", "--params", str(SHIPPED)], ""),
        ([], ""),
    ],
)
def test_a_task_that_runs_with_its_default_model_is_named(arguments, note, caplog):
    # Ends before anything is loaded.
    assert main(["run", "--source", "synthetic", "--results", "photos", *arguments]) == 2
    assert caplog.text.count("runs, too") == bool(note)
    assert note in caplog.text
