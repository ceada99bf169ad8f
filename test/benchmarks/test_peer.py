# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Somebody else's node as a side: its messages, options and processes."""

import os
import pickle
import shlex
import sys
import time
from types import SimpleNamespace as Message

import benches
import pytest

from benchmarks.harness.processes import BenchmarkError, Child, foreign_program
from benchmarks.harness.tasks import configure
from benchmarks.overload.bench import (
    NODES,
    ConsumerSpec,
    FrameRow,
    Played,
    Rounds,
    check_stamps,
    describe_detector,
    find_roles,
)
from benchmarks.overload.peer import PEER, Peer, make_peer, read_boxes
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.results import Detections
from jetson_dnn_rt.safety.children import python_command

LABELS = ("car", "person")
TYPE = "vision_msgs/msg/Detection2DArray"


def centre(x, y):
    return Message(position=Message(x=x, y=y))


def of_vision_msgs(*guesses):
    results = [
        Message(hypothesis=Message(class_id=class_id, score=score)) for class_id, score in guesses
    ]
    bbox = Message(center=centre(10.0, 20.0), size_x=4.0, size_y=6.0)
    return Message(bbox=bbox, results=results)


def of_yolo_msgs(class_id, class_name, score):
    bbox = Message(center=centre(10.0, 20.0), size=Message(x=4.0, y=6.0))
    return Message(bbox=bbox, class_id=class_id, class_name=class_name, score=score)


@pytest.mark.parametrize(
    "boxes",
    [
        [
            of_vision_msgs(("1", 0.25)),
            of_vision_msgs(("person", 0.25), ("Car", 0.5)),
            of_vision_msgs(("traffic light", 0.9)),
            of_vision_msgs(("2", 0.9)),
            of_vision_msgs(),
        ],
        [
            of_yolo_msgs(7, "person", 0.25),
            of_yolo_msgs(0, "", 0.5),
            of_yolo_msgs(0, "traffic light", 0.9),
        ],
    ],
)
def test_boxes_go_by_the_names_of_their_classes_or_by_their_numbers(boxes):
    found = read_boxes(Message(detections=boxes), LABELS)
    assert found.class_ids.tolist() == [0, 1]
    assert found.scores.tolist() == [0.5, 0.25]
    assert found.boxes.tolist() == [[8.0, 17.0, 12.0, 23.0]] * 2


def test_no_box_at_all_is_a_result():
    found = read_boxes(Message(detections=[]), LABELS)
    assert (len(found), found.boxes.shape) == (0, (0, 4))


def test_the_usual_node_has_the_other_networks_beside_a_peer(tmp_path):
    tasks = tuple(configure(name, "null:1") for name in ("detector", "segmenter", "companion"))
    spec = ConsumerSpec(tasks, 1, 10.0, tmp_path / "log", results=tmp_path / "results")
    roles = find_roles(PEER, spec)
    assert list(roles) == ["naive", PEER]
    beside = roles["naive"]
    assert [task.name for task in beside.tasks] == ["segmenter", "companion"]
    assert (beside.output, beside.results) == (tmp_path / "beside", None)
    assert roles[PEER] == spec
    assert find_roles("naive", spec) == {"naive": spec}
    assert find_roles("sequential", spec) == {"ours": spec}


def test_the_detector_alone_is_judged_by_its_own_frames():
    rows = [
        FrameRow("detector", 100, None, 130, False, "published"),
        FrameRow("segmenter", 100, 101, 102, True, "published"),
        FrameRow("detector", 200, None, 260, False, "published"),
    ]
    rounds = Rounds([Played(rows, 0, 1_000_000_000, 1.5)])
    figures = describe_detector(rounds, [100, 200, 300, 400], 50)
    assert (figures["frames"], figures["published"], figures["in_time"]) == (4, 2, 1)
    assert (figures["met_ratio"], figures["met_ratio_started"], figures["cores"]) == (
        0.25,
        None,
        1.5,
    )
    assert figures["age_ms"] == {"p50": 3e-5, "p99": 6e-5}
    assert describe_detector(Rounds(), [100], 50)["cores"] is None


def test_a_side_fails_whose_results_have_stamps_of_their_own():
    def make(*stamps):
        rows = [FrameRow("detector", stamp, None, 500, False, "published") for stamp in stamps]
        return Rounds([Played(rows, 100, 200)])

    good, bad = make(99, 100, 150), make(150, 151, 152)
    check_stamps(good, [100, 150])
    check_stamps(bad, [100, 150])
    assert good.failures == []
    assert bad.failures == ["2 results have stamps that no frame had"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--peer", "run 'it"], "No closing quotation"),
        (["--peer", "run", "--peer-type", "no_such_msgs/msg/Boxes"], "no_such_msgs"),
        (["--peer", "run", "--peer-type", ""], "needs PACKAGE/msg/NAME"),
    ],
)
def test_bad_options_are_refused_before_anything_is_measured(options, message):
    with pytest.raises(ConfigurationError, match=message):
        make_peer(benches.parse("overload", *options))


def test_a_peer_is_a_command_and_a_topic():
    assert make_peer(benches.parse("streaming")) is None
    pytest.importorskip("vision_msgs.msg")
    args = benches.parse("streaming", "--peer", "bash 'my node.sh' x", "--peer-topic", "/boxes")
    assert make_peer(args) == Peer(("bash", "my node.sh", "x"), "/boxes", TYPE)


def test_results_are_made_of_messages_only_when_they_are_written(tmp_path):
    pytest.importorskip("rclpy")
    pytest.importorskip("vision_msgs.msg")
    from benchmarks.overload.nodes import FrameLog

    made = []

    def make():
        made.append("boxes")
        return Detections.empty()

    spec = ConsumerSpec((), 1, 10.0, tmp_path / "log", results=tmp_path / "results")
    log = FrameLog(spec)
    log.add(FrameRow("detector", 100, None, 130, False, "published"), make)
    assert made == []
    log.write()
    ((task, time_ns, result),) = pickle.loads(spec.results.read_bytes())
    assert (task, time_ns, len(result), made) == ("detector", 130, 0, ["boxes"])


def test_what_a_shell_started_has_time_to_end(tmp_path):
    """The shell itself ends at once; a node that is killed leaves shared memory behind."""
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    code = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), open({str(ended)!r}, 'w'),"
        " sys.exit(0)))\n"
        f"open({str(begun)!r}, 'w')\n"
        "signal.pause()\n"
    )
    shell = f"{shlex.join([sys.executable, '-c', code])}; true"
    with foreign_program(["bash", "-c", shell]):
        while not begun.exists():
            time.sleep(0.005)
    assert ended.exists()


def test_all_that_a_foreign_program_started_ends_with_it(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = ["sh", "-c", f"exec 3>'{pipe}'; trap '' TERM; sleep 600 & echo begun >&3; wait"]
    with foreign_program(command):
        held = pipe.open()
        assert held.readline() == "begun\n"
    # At its end only when nobody has it open for writing any more.
    assert held.read() == ""
    held.close()


@pytest.mark.nightly
def test_a_peer_that_ends_by_itself_is_a_failure(tmp_path, capfd):
    pytest.importorskip("rclpy")
    pytest.importorskip("vision_msgs.msg")
    spec = ConsumerSpec((), 1, 10.0, tmp_path / "log", peer=Peer(("false",), "/boxes", TYPE))
    path = tmp_path / "spec"
    path.write_bytes(pickle.dumps(spec))
    with (
        pytest.raises(BenchmarkError, match="did not become ready"),
        Child(python_command(NODES, PEER, str(path))),
    ):
        pass
    assert "the peer ended with exit code 1" in capfd.readouterr().err
