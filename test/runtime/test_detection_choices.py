# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Classes, thresholds and tracks of a task in a session, with the built-in networks."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.demo.scenes import SceneGenerator
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Detections
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.tasks import Outcome, Work

PERIOD_NS = 33_333_333
FULL = "full@onnxruntime-fp32"


@contextmanager
def open_session(**values):
    given = {"warmup_runs": 2, "engine_cache": "none", "deadline_ms": 30_000.0, **values}
    config = TaskConfig("detector", **{"variants": (FULL,), **given})
    process = ProcessConfig(gc_freeze=False, mallopt=False, switch_interval_us=0)
    with Session(PerceptionConfig((config,), (), process)) as session:
        yield session


class Drive:
    """Frames of the demo's drive, answered one by one."""

    def __init__(self, session, seed=5):
        self.session, self._scenes = session, SceneGenerator(seed, (480, 640))
        self._results: list[Detections] = []
        session.observe(self._observe)

    def _observe(self, record, result):
        assert record.outcome is Outcome.MET, record
        self._results.append(result)

    def paint(self, number) -> Frame:
        picture = np.zeros((480, 640, 3), np.uint8)
        self._scenes.render(number * PERIOD_NS, picture)
        return Frame(picture, "bgr8", number * PERIOD_NS, number)

    def answer(self, number) -> Detections:
        self.session.submit(self.paint(number))
        assert self.session.wait_idle(30.0)
        return self._results[-1]


def test_classes_and_thresholds_change_from_the_next_frame_on():
    with open_session(confidence_threshold=0.2) as session:
        drive, task = Drive(session), session.tasks["detector"]
        everything = drive.answer(0)
        car, sign = (task.model.labels.index(name) for name in ("car", "sign"))
        assert {car, sign} < set(everything.class_ids.tolist())
        changes = {
            ("car",): everything.class_ids == car,
            ("car", str(sign)): np.isin(everything.class_ids, [car, sign]),
        }
        for classes, expected in changes.items():
            session.update(replace(task.config, classes=classes))
            found = drive.answer(0)
            assert np.array_equal(found.boxes, everything.boxes[expected])
            assert np.array_equal(found.scores, everything.scores[expected])
        # Exactly the score of a box is enough, the next number above it is too much.
        score = everything.scores[everything.class_ids == car].min()
        for limit, more in ((score, 0), (np.nextafter(score, np.float32(1)), 1)):
            session.update(
                replace(task.config, classes=("car",), class_thresholds=(f"car={limit!s}",))
            )
            assert len(drive.answer(0)) == np.sum(everything.class_ids == car) - more
        session.update(replace(task.config, classes=(), class_thresholds=()))
        assert np.array_equal(drive.answer(0).boxes, everything.boxes)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"classes": ("car", "bus")}, "no class 'bus'; fix: .* one of car, truck, pedestrian"),
        ({"class_thresholds": ("9=0.5",)}, "no class '9'"),
    ],
)
def test_a_class_that_is_not_there_is_refused_and_changes_nothing(change, reason):
    with open_session(classes=("car",)) as session:
        drive, task = Drive(session), session.tasks["detector"]
        before = drive.answer(0)
        config, settings = task.config, task.settings
        changed = replace(config, deadline_ms=1.0, confidence_threshold=0.9, **change)
        with pytest.raises(ConfigurationError, match=reason):
            session.update(changed)
        assert task.config is config
        assert task.settings is settings
        deadline_ns = session.executor.snapshot("detector").parameters.deadline_ns
        assert deadline_ns == 30_000_000_000
        assert np.array_equal(drive.answer(0).boxes, before.boxes)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"classes": ("lorry",)}, "classes: the model has no class 'lorry'"),
        ({"class_thresholds": ("lorry=0.5",)}, "class_thresholds: the model has no class 'lorry'"),
        (
            {"kind": "segmentation", "model": "builtin:segmenter", "classes": ("road",)},
            "classes has no meaning for builtin:segmenter, a model for segmentation",
        ),
        (
            {"kind": "segmentation", "model": "builtin:segmenter", "class_thresholds": ("0=0.5",)},
            "class_thresholds has no meaning",
        ),
        (
            {"kind": "segmentation", "model": "builtin:segmenter", "tracker": "bytetrack"},
            "tracker: bytetrack has no meaning",
        ),
    ],
)
def test_a_task_that_cannot_choose_so_is_not_loaded(values, reason):
    with pytest.raises(ConfigurationError, match=reason), open_session(**values):
        pass


def test_no_frame_is_decoded_with_half_of_a_change():
    """Two choices in turns, while frames are answered: each result is that of one of them."""
    with open_session(confidence_threshold=0.9) as session:
        drive, task = Drive(session), session.tasks["detector"]
        loose = replace(
            task.config, classes=("sign",), class_thresholds=("sign=0.05",), max_detections=1000
        )
        strict = task.config
        allowed = []
        for config in (loose, strict):
            session.update(config)
            allowed.append(drive.answer(0).boxes.tolist())
        assert allowed[0] != allowed[1]
        done = threading.Event()

        def change():
            while not done.is_set():
                session.update(loose)
                session.update(strict)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            answers = [drive.answer(0).boxes.tolist() for _ in range(60)]
        finally:
            done.set()
            thread.join()
        assert all(answer in allowed for answer in answers)


def test_without_a_tracker_there_are_no_numbers():
    with open_session() as session:
        assert Drive(session).answer(0).track_ids is None


def test_objects_keep_their_numbers_in_every_variant_and_over_skipped_frames():
    pytest.importorskip("trackforge", reason="trackforge is not installed")
    pytest.importorskip("openvino", reason="openvino is not installed")
    second = "full@openvino-fp32"
    values = {"tracker": "bytetrack", "variants": (FULL, second)}
    with open_session(**values, confidence_threshold=0.5) as session:
        drive, task = Drive(session), session.tasks["detector"]
        first = drive.answer(0)
        # Neither the warm-up nor a variant that is measured has had a number.
        count = len(first)
        assert count > 3
        assert sorted(first.track_ids.tolist()) == list(range(1, count + 1))
        kept = {}
        for number in [2, 4, 5, 7, 10, 12, 13, 16]:
            session.update(replace(task.config, variant=second if number % 2 else FULL))
            found = drive.answer(number)
            kept[number] = set(found.track_ids.tolist()) & set(first.track_ids.tolist())
            # What is measured beside it, as when a variant is added, leaves no trace.
            rehearsal = task.variants.rehearse(second)
            task._measure(second, rehearsal, [task.frame])
        # Half a second later most of them are still in the picture, and known.
        assert len(kept[16]) > count / 2, (count, kept)


def test_a_task_that_is_reloaded_after_a_hang_goes_on_with_both():
    pytest.importorskip("trackforge", reason="trackforge is not installed")
    with open_session(tracker="bytetrack", confidence_threshold=0.5) as session:
        drive, task = Drive(session), session.tasks["detector"]
        session.update(replace(task.config, classes=("car",)))
        first = drive.answer(0)
        old = []
        work = Work(drive.paint(1))
        for stage in task.rebuild(old.append)[FULL]:
            stage.run(work)
        assert set(work.result.class_ids.tolist()) == {task.model.labels.index("car")}
        assert set(work.result.track_ids.tolist()) >= set(first.track_ids.tolist()) > set()
        for close in old:
            close()


def test_an_inactive_task_tracks_nothing():
    pytest.importorskip("trackforge", reason="trackforge is not installed")
    with open_session(tracker="bytetrack", confidence_threshold=0.5) as session:
        drive, task = Drive(session), session.tasks["detector"]
        count = len(drive.answer(0))
        session.deactivate("detector")
        scene = np.zeros((480, 640, 3), np.uint8)
        SceneGenerator(9, (480, 640)).render(0, scene)
        task.warm_up([Frame(scene, "bgr8", PERIOD_NS, 1)])
        session.activate("detector")
        # Forgotten, and none of the numbers is given again.
        again = drive.answer(1).track_ids
        assert again.min() == count + 1
        assert sorted(again.tolist()) == list(range(count + 1, count + 1 + len(again)))


def test_without_the_library_the_task_is_not_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "trackforge", None)
    with (
        pytest.raises(ConfigurationError, match="bytetrack needs trackforge"),
        open_session(tracker="bytetrack"),
    ):
        pass
