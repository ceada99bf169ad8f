# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`evaluate` as scripts see it: every mode on small bags with networks that compute nothing."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from bags import (
    PERIOD_NS,
    STORE,
    TOPIC,
    Writer,
    make_compressed,
    make_image,
    make_picture,
    write_bag,
)
from photos import write_photos

from jetson_dnn_rt.cameras.files import read_image
from jetson_dnn_rt.cli.main import BAD_ARGUMENTS, build_parser, main
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.evaluate.chunk import release
from jetson_dnn_rt.lab.evaluate.plan import order_variants, read_task_file
from jetson_dnn_rt.lab.simulate.sharing import Sharing
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import SHARING

FRAMES = 15
PARAMETERS = """
/**/perception:
  ros__parameters:
    tasks: [detector, rear/segmenter]
    workers: 2
    realtime: {mallopt: false, gc_freeze: false, switch_interval_us: 0, cpu_affinity: [-1]}
/**/detector:
  ros__parameters: {model: "null:0.1", deadline_ms: 5000.0, engine_cache: none, warmup_runs: 3}
/**/rear/segmenter:
  ros__parameters: {model: "null:0.1,segmentation", engine_cache: none, warmup_runs: 3}
"""


@pytest.fixture
def params(tmp_path):
    (tmp_path / "tasks.yaml").write_text(PARAMETERS, encoding="utf-8")
    return str(tmp_path / "tasks.yaml")


@pytest.fixture
def bag(tmp_path):
    """Fifteen images, of which the eighth has an unknown encoding."""
    images = [make_image(n, encoding="bayer?" if n == 7 else "bgr8") for n in range(FRAMES)]
    yield str(write_bag(tmp_path / "drive", images))
    release()


def run(capsys, *arguments):
    """Exit code, JSON of the only line, and stderr."""
    code = main(["evaluate", *arguments, "--json"])
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) <= 1
    return code, json.loads(lines[0]) if lines else None, captured.err


def test_sequential_and_its_trace(capsys, tmp_path, bag, params):
    out = tmp_path / "out"
    code, result, _ = run(
        capsys, bag, "--params", params, "--repeat", "2", "--chunk", "4", "--output", str(out),
        "--masks",
    )  # fmt: skip
    assert code == 0
    assert (result["frames"], result["messages"], result["unreadable"]) == (14, FRAMES, 1)
    assert (result["lost"], result["identical"]) == (0, True)
    assert result["bags"][0]["bad"][0]["message"] == 7
    assert set(result["tasks"]) == {"detector", "rear/segmenter"}
    variant = result["tasks"]["detector"]["variants"]["full@null"]
    assert variant["runs"] == 2 * 14
    assert 0.1 <= variant["execution_ms"]["best"] <= variant["execution_ms"]["hwm"]
    assert set(variant["stages_ms"]) == {"preprocess", "inference", "decode"}
    assert result["tasks"]["detector"]["deadline_ms"] == 5000.0
    assert result["tasks"]["rear/segmenter"]["deadline_ms"] == PERIOD_NS / 1e6
    assert json.loads((out / "summary.json").read_text(encoding="utf-8")) == result
    lines = (out / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2 * 14
    keys = {key for line in lines for key in json.loads(line)}
    assert {"boxes", "class_shares", "mask_png", "thumbnail"} <= keys
    trace = open_trace(out)
    jobs = list(trace.jobs())
    assert trace.metadata.source == "evaluate"
    assert trace.metadata.parameters["mode"] == "sequential"
    sharing = {"workers": 2, "helpers": 1, "threads": 0}
    assert trace.metadata.parameters[SHARING] == sharing
    assert trace.metadata.tasks["detector"].model == "null:0.1"
    assert sum(not job.warm_up for job in jobs) == 2 * 2 * 14
    assert {job.camera for job in jobs} == {f"{tmp_path.name}/drive#{TOPIC}"}
    given = (bag, "--mode", "simulated", "--trace", str(out), "--cohort", "detector")
    code, simulated, _ = run(capsys, *given)
    assert code == 0
    assert simulated["tasks"]["detector"]["outcomes"]["met"] == 14
    # For people there is a table.
    assert main(["evaluate", bag, "--params", params, "--frames", "9"]) == 0
    text = capsys.readouterr().out
    assert "rear/segmenter  full@null" in text
    assert "8 of 9 messages, 1 unreadable (message 7: " in text


def write_silent_bag(path, *others):
    """A bag whose image topic was announced, and on which nothing was published."""
    with Writer(path, version=9) as writer:
        for topic in (TOPIC, *others):
            writer.add_connection(topic, "sensor_msgs/msg/Image", typestore=STORE)
    return str(path)


@pytest.mark.parametrize("mode", [(), ("--workers", "1"), ("--mode", "realtime")])
@pytest.mark.parametrize("silent_first", [False, True])
def test_a_bag_without_a_message_among_others(capsys, tmp_path, bag, params, mode, silent_first):
    silent, out = write_silent_bag(tmp_path / "silent"), tmp_path / "out"
    bags = [silent, bag] if silent_first else [bag, silent]
    code, result, _ = run(
        capsys,
        *bags,
        "--params",
        params,
        "--output",
        str(out),
        *mode,
        "--deadline",
        "detector=999",
    )
    assert code == 0
    assert result["frames"] == 14
    assert [one["messages"] for one in result["bags"]] == ([0, 15] if silent_first else [15, 0])
    notes = result["bags"][0 if silent_first else 1]["notes"]
    assert notes == [f"no message is on {TOPIC}"]
    assert json.loads((out / "summary.json").read_text(encoding="utf-8")) == result
    assert len({(job.record.task, job.stamp_ns) for job in open_trace(out).jobs()}) == 2 * 14


@pytest.mark.parametrize("mode", ["sequential", "realtime"])
def test_bags_without_any_message_are_no_matter_of_the_rate(capsys, tmp_path, params, mode):
    silent = write_silent_bag(tmp_path / "silent")
    code, _, text = run(capsys, silent, "--params", params, "--mode", mode)
    assert code == 1
    assert f"there is nothing to evaluate: {silent}: no message is on {TOPIC}" in text


def test_a_bag_of_unreadable_messages_does_not_end_the_replay_of_others(
    capsys, tmp_path, bag, params
):
    """In real time every variant is warmed up with the bag's own first frames."""
    spoilt = str(write_bag(tmp_path / "spoilt", [make_image(0, encoding="bayer?")] * 3))
    given = ("--params", params, "--mode", "realtime", "--deadline", "detector=999")
    code, result, text = run(capsys, spoilt, bag, *given)
    assert (code, result["frames"], result["lost"]) == (0, 14, 0)
    assert [one["unreadable"] for one in result["bags"]] == [3, 1]
    assert "no message is a frame: nothing is played" in text
    code, _, text = run(capsys, spoilt, *given)
    assert code == 1
    assert "no message of the bags is a frame: encoding 'bayer?' is not one of" in text


def test_a_simulated_bag_that_is_not_the_one_of_the_trace(capsys, tmp_path, bag, params):
    out = tmp_path / "out"
    assert run(capsys, bag, "--params", params, "--output", str(out))[0] == 0
    short = str(write_bag(tmp_path / "other" / "drive", [make_image(0)]))
    renamed = tmp_path / "other" / tmp_path.name
    renamed.mkdir()
    Path(short).rename(renamed / "drive")
    given = ("--mode", "simulated", "--trace", str(out))
    code, _, text = run(capsys, str(renamed / "drive"), *given)
    assert code == 2
    assert "has 1 messages, and no frame" in text


def test_accuracy_on_labelled_photos(capsys, tmp_path, params):
    """The null segmenter finds the background in every pixel; 8 of 48 pixels have a label."""
    photos, masks = tmp_path / "photos", tmp_path / "masks"
    mask = np.full((6, 8), 255, np.uint8)
    mask[0, :4], mask[1, :4] = 0, 1
    for folder in (photos, masks):
        folder.mkdir()
    for name in ("a.png", "b.png", "c.png"):
        cv2.imwrite(str(photos / name), np.zeros((6, 8, 3), np.uint8))
        if name != "c.png":
            cv2.imwrite(str(masks / name), mask)
    given = (f"images:{photos}", "--params", params, "--truth", str(masks))
    code, result, _ = run(capsys, *given)
    assert code == 0
    assert set(result["accuracy"]) == {"rear/segmenter"}
    assert result["accuracy"]["rear/segmenter"]["full@null"] == {
        "metric": "mIoU", "value": 0.25, "frames": 2, "failed": 0, "judged": 8 / 48,
        "classes": {"background": 0.5, "foreground": 0.0},
    }  # fmt: skip
    assert main(["evaluate", *given]) == 0
    assert "0.250 mIoU" in capsys.readouterr().out
    given_live = (*given[:3], "--mode", "realtime", "--streaming", str(masks))
    code, live, _ = run(capsys, *given_live)
    found = live["streaming"]["rear/segmenter"]
    assert (code, found["instants"], found["judged"]) == (0, 2, 8 / 48)
    cv2.imwrite(str(masks / "b.png"), mask[:-1])
    assert main(["evaluate", *given]) == BAD_ARGUMENTS
    assert "frame b.png: masks must be of one shape" in capsys.readouterr().err
    cv2.imwrite(str(masks / "b.png"), mask.astype(np.uint16))
    for wrong in (given, given_live):
        assert main(["evaluate", *wrong]) == BAD_ARGUMENTS
        assert "b.png is no mask (uint16, 1 channels); fix" in capsys.readouterr().err
    release()


def in_eight_bits(file):
    """Bytes of a picture's file, of 8 bits: a message with grey of 16 is refused."""
    data = file.read_bytes()
    if file.suffix != ".png" or cv2.imread(str(file), cv2.IMREAD_UNCHANGED).dtype != np.uint16:
        return data
    return cv2.imencode(".png", read_image(file))[1].tobytes()


@pytest.fixture(params=["photos", "raw", "jpeg"])
def mixed(request, tmp_path):
    """A hundred pictures of different sizes, and one that is none: as files or in a bag."""
    folder = tmp_path / "photos"
    write_photos(folder, 100)
    (folder / "050a.jpg").write_bytes(b"no picture")
    if request.param == "photos":
        yield f"images:{folder}"
    else:
        messages = []
        for file in sorted(folder.iterdir()):
            if request.param == "jpeg":
                messages.append(make_compressed(in_eight_bits(file)))
            elif file.name == "050a.jpg":
                messages.append(make_image(7, encoding="bayer?"))
            else:
                messages.append(make_picture(read_image(file)))
        yield str(write_bag(tmp_path / "mixed", messages))
    release()


@pytest.mark.parametrize("mode", [("sequential", "--repeat", "2"), ("realtime", "--rate", "100")])
def test_a_hundred_pictures_of_different_sizes_are_all_answered(capsys, mixed, params, mode):
    code, result, _ = run(capsys, mixed, "--params", params, "--mode", *mode)
    assert code == 0
    assert (result["frames"], result["lost"]) == (100, 0)
    bag = result["bags"][0]
    assert (bag["messages"], [one["message"] for one in bag["bad"]]) == (101, [51])
    for task in result["tasks"].values():
        if mode[0] == "realtime":
            assert sum(task["outcomes"].values()) == task["released"] == 100
            assert task["outcomes"]["failed"] == 0
        else:
            variant = task["variants"]["full@null"]
            assert (variant["runs"], variant["failed"]) == (200, 0)
    assert result.get("identical") in (True, None)


def test_a_panorama_that_no_network_takes_fails_alone(capsys, tmp_path, params):
    sizes = write_photos(tmp_path / "photos", 5)
    for name in ("001a.png", "003a.png"):
        cv2.imwrite(str(tmp_path / "photos" / name), np.zeros((2, 40_000, 3), np.uint8))
    code, result, _ = run(capsys, str(tmp_path / "photos"), "--params", params)
    release()
    assert (code, result["frames"], result["lost"]) == (0, len(sizes) + 2, 0)
    for task in result["tasks"].values():
        variant = task["variants"]["full@null"]
        assert (variant["runs"], variant["failed"]) == (len(sizes), 2)
        reason = "FrameError: bgr8: sides must be in [1, 32767] pixels: 40000x2"
        assert variant["failures"] == {"2": reason, "5": reason}


def test_processes_find_the_same(capsys, tmp_path, bag, params):
    given = (bag, "--params", params, "--task", "detector", "--chunk", "5")
    _, alone, _ = run(capsys, *given, "--output", str(tmp_path / "one"))
    code, shared, _ = run(capsys, *given, "--workers", "2", "--output", str(tmp_path / "two"))
    assert code == 0
    assert shared["frames"] == alone["frames"] == 14
    variants = [result["tasks"]["detector"]["variants"] for result in (alone, shared)]
    assert variants[0]["full@null"]["digests"] == variants[1]["full@null"]["digests"]
    one, two = ((tmp_path / name / "results.jsonl").read_bytes() for name in ("one", "two"))
    assert one == two


def test_realtime_shares_the_cores_as_the_nodes_do(capsys, tmp_path, bag, params, monkeypatch):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("torch", reason="torch makes the network")
    from networks import make_onnx

    network = f"onnx:{make_onnx(tmp_path / 'small.onnx')}"
    monkeypatch.setattr("jetson_dnn_rt.runtime.session.count_cores", lambda: 2)
    given = (
        bag, "--mode", "realtime", "--params", params, "--rate", "50",
        "--set", "perception.threads=auto",
        *(f"--set={task}.model={network}" for task in ("detector", "rear/segmenter")),
        *(f"--set={task}.kind=segmentation" for task in ("detector", "rear/segmenter")),
    )  # fmt: skip
    code, live, errors = run(capsys, *given, "--output", str(tmp_path / "live"))
    assert (code, live["lost"]) == (0, 0)
    assert "threads: auto: 2 x 1 (workers x threads) takes a network longer than 1 x 2" in errors
    assert "threads: auto: 1 x 2 (workers x threads): decided for 1 x 2: one after the" in errors
    parameters = open_trace(tmp_path / "live").metadata.parameters
    assert parameters["workers"] == 1
    told = Sharing.of(open_trace(tmp_path / "live").metadata)
    assert (told.workers, told.helpers, told.threads) == (1, 1, "auto")
    assert told.narrow_slowdowns is not None
    # Workers that are asked for share the cores whatever the load.
    code, live, errors = run(capsys, *given, "--workers", "3", "--output", str(tmp_path / "three"))
    assert (code, live["lost"]) == (0, 0)
    assert "threads: auto" not in errors
    assert open_trace(tmp_path / "three").metadata.parameters["workers"] == 3


def test_realtime_and_what_if(capsys, tmp_path, bag, params):
    out, again = tmp_path / "live", tmp_path / "again"
    code, live, _ = run(
        capsys, bag, "--mode", "realtime", "--params", params, "--rate", "200", "--repeat", "2",
        "--deadline", "rear/segmenter=6000", "--output", str(out), "--masks",
    )  # fmt: skip
    assert code == 0
    assert (live["frames"], live["lost"]) == (14, 0)
    for task in live["tasks"].values():
        assert task["released"] == sum(task["outcomes"].values()) == 2 * 14
    assert live["tasks"]["rear/segmenter"]["deadline_ms"] == 6000.0
    trace = open_trace(out)
    jobs = list(trace.jobs())
    assert len(jobs) == 2 * 2 * 14
    assert len({(job.record.task, job.record.sequence) for job in jobs}) == len(jobs)
    assert trace.metadata.parameters["workers"] == 2
    lines = (out / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(jobs)
    assert any("mask_png" in json.loads(line) for line in lines)

    code, same, _ = run(capsys, str(out), "--mode", "simulated", "--output", str(again))
    assert code == 0
    assert same["workers"] == 2
    released = {name: task["released"] for name, task in same["tasks"].items()}
    assert released == {"detector": 2 * 14, "rear/segmenter": 2 * 14}
    assert len(list(open_trace(again).jobs())) == len(jobs)
    code, tight, _ = run(
        capsys, "--trace", str(out), "--mode", "simulated", "--deadline", "detector=0.01",
        "--cohort", "detector,detector", "--seeds", "3", "--policy", "static",
    )  # fmt: skip
    assert code == 0
    assert set(tight["tasks"]) == {"detector", "detector-2"}
    assert tight["miss_ratio"] > 0.9
    assert len(tight["miss_ratios"]) == 3


def test_the_policy_of_the_file_decides(capsys, tmp_path, bag, params):
    with Path(params).open("a", encoding="utf-8") as file:
        file.write("/**/coordinator:\n  ros__parameters: {policy: neuos_max_accuracy}\n")
    out = tmp_path / "live"
    live = (bag, "--mode", "realtime", "--params", params, "--task", "detector", "--rate", "200")
    code, result, _ = run(capsys, *live, "--output", str(out))
    assert (code, result["policy"], result["switches"]) == (0, "neuos_max_accuracy", 0)
    assert {task["configured_variant"] for task in result["tasks"].values()} == {"full@null"}
    assert result["tasks"]["detector"]["released"] == 14
    _, again, _ = run(capsys, str(out), "--mode", "simulated")
    assert again["policy"] == "neuos_max_accuracy"
    _, other, _ = run(capsys, str(out), "--mode", "simulated", "--policy", "static")
    assert other["policy"] == "static"
    _, without, _ = run(capsys, *live, "--set", "perception.coordinator=false")
    assert without["policy"] == "static"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no bag is given"),
        (["nowhere"], "bag nowhere is not there"),
        (["--mode", "simulated"], "--trace is missing"),
        (["BAG", "--policy", "static"], "--policy is for --mode realtime or simulated only"),
        (["BAG", "--mode", "realtime", "--policy", "luck"], "coordinator: policy must be one of"),
        (["BAG", "--speed", "2"], "--speed is for --mode realtime or simulated only"),
        (["BAG", "--mode", "realtime", "--chunk", "2"], "--chunk is for --mode sequential only"),
        (["BAG", "--mode", "realtime", "--rate", "2", "--speed", "2"], "cannot be combined"),
        (["BAG", "--mode", "simulated"], "a bag needs --trace"),
        (["--mode", "simulated", "--trace", "BAG", "--task", "a"], "are those of the trace"),
        (["BAG", "--topic", "/lidar"], "no images on '/lidar'"),
        (["BAG", "BAG"], "two of the bags are called"),
        (["BAG", "--task", "lidar"], "there is no task lidar"),
        (["BAG", "--deadline", "lidar=3"], "there is no node lidar"),
        (["BAG", "--variant", "detector=fast"], "detector: "),
        (["BAG", "--set", "perception.workers=0"], "workers must be in [1, 64]"),
        (["BAG", "--set", "perception.max_inflight=cuda"], "max_inflight must be"),
        (["BAG", "--set", "perception.realtime.priority=99"], "realtime.priority must be"),
    ],
)
def test_bad_arguments(capsys, bag, params, arguments, words):
    given = [bag if argument == "BAG" else argument for argument in arguments]
    if "simulated" not in given:
        given += ["--params", params]
    assert main(["evaluate", *given]) == BAD_ARGUMENTS
    assert words in capsys.readouterr().err


def test_workers_that_are_requested_share_the_cores(params, monkeypatch):
    monkeypatch.setattr("jetson_dnn_rt.lab.evaluate.plan.count_cores", lambda: 8)
    given = ["evaluate", "b", "--params", params, "--set", "detector.threads=5"]

    def count(file):
        return [file.process.workers, *(spec.config.threads for spec in file.make_specs(0))]

    file = read_task_file(build_parser().parse_args(given))
    assert count(file) == [2, 5, 4]
    assert not file.follows_load
    assert count(file.with_workers(4)) == [4, 5, 2]
    given += ["--set", "rear/segmenter.threads=auto"]
    file = read_task_file(build_parser().parse_args(given))
    assert file.follows_load
    assert count(file) == [1, 5, 8]


def test_parameters_are_those_of_the_nodes(params):
    args = build_parser().parse_args(
        ["evaluate", "b", "--params", params, "--variant", "detector=full@null",
         "--set", "detector.confidence_threshold=0.7"]
    )  # fmt: skip
    file = read_task_file(args)
    assert file.process.workers == 2
    assert file.process.mallopt is False
    detector, segmenter = file.make_specs(PERIOD_NS)
    assert detector.config.variants == ("full@null",)
    assert detector.config.confidence_threshold == 0.7
    assert segmenter.config.kind == "segmentation"
    assert segmenter.deadline_ns == segmenter.period_ns == PERIOD_NS
    (other, _) = file.make_specs(0)
    assert other.period_ns == int(1e9 / 30.0)


def test_the_variant_that_runs_is_in_front():
    listed = ("full@torch-fp32", "full@openvino-fp32")
    assert order_variants(listed, "full@openvino-fp32") == listed[::-1]
    assert order_variants(listed, "") == listed
    assert order_variants((), "") == ()
    with pytest.raises(ConfigurationError):
        order_variants(("fast",), "")


def test_streaming_accuracy_beside_a_sequential_run(capsys, tmp_path, bag, params):
    out = tmp_path / "out"
    given = (bag, "--params", params)
    assert run(capsys, *given, "--output", str(out), "--masks")[0] == 0
    code, result, _ = run(capsys, *given, "--mode", "realtime", "--streaming", str(out))
    assert code == 0
    boxes, masks = (result["streaming"][task] for task in ("detector", "rear/segmenter"))
    # A null detector sees nothing, so there is nothing to find.
    assert (boxes["metric"], boxes["value"], boxes["instants"]) == ("sAP", None, FRAMES - 1)
    # Its masks are all of one class: wrong only while there is none.
    assert masks["metric"] == "streaming mIoU"
    assert 1 <= masks["unanswered"] < FRAMES - 1
    assert masks["value"] == pytest.approx(1.0 - masks["unanswered"] / (FRAMES - 1))
    assert masks["own_frames"] == 1.0
    assert main(["evaluate", *given, "--mode", "realtime", "--streaming", str(out)]) == 0
    assert "streaming mIoU" in capsys.readouterr().out
    assert run(capsys, *given, "--streaming", str(out))[0] == BAD_ARGUMENTS
