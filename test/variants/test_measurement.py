# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What is measured of a variant: times, memory, agreement; and the rule by which it is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.cli.library import format_figures
from jetson_dnn_rt.clock import SteadyClock, VirtualClock
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Classification, Detections, Segmentation
from jetson_dnn_rt.safety.records import read_record
from jetson_dnn_rt.tasks import Stage
from jetson_dnn_rt.variants.measuring.agreement import Agreement, compare
from jetson_dnn_rt.variants.measuring.measurement import (
    KEPT_TIMES,
    Measurement,
    TimeDistribution,
    Trial,
    decide,
    find_refusal,
    make_measurement,
    measure_memory,
    reference_of,
    try_variant,
)
from jetson_dnn_rt.variants.measuring.timing import DISCARDED_RUNS, measure_stages
from jetson_dnn_rt.variants.spec import VariantSpec

MIB = 1 << 20
TUCKER = VariantSpec.parse("tucker-0.50@torch-fp32")
FULL = VariantSpec.parse("full@torch-fp32")


def make(spec, time_ms=5.0, memory=10**7, device=0, agreement=0.97):
    total = TimeDistribution.of("total", [round(time_ms * 1e6)])
    stages = (TimeDistribution.of("inference", [round(time_ms * 1e6)]),)
    return make_measurement(
        spec,
        Trial((), total, stages, memory, device),
        agreement=Agreement(agreement, "mAP@0.5", 50, 311, "full@openvino-fp32"),
        frames="synthetic",
        frame_size=(480, 640),
        threads=2,
        parameters=1000,
        macs=10**6,
    )


# -- distribution ------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "p99"), [(99, None), (100, "0.10")])
def test_a_p99_that_is_the_longest_time_is_not_printed(count, p99):
    total = TimeDistribution.of("total", [1_000 * (number + 1) for number in range(count)])
    measured = replace(make(FULL), total=total)
    assert format_figures(measured)[1] == p99


def test_quantiles_are_times_that_occurred():
    times = TimeDistribution.of("stage", list(range(100, 0, -1)))
    assert (times.count, times.mean_ns) == (100, 51)
    assert (times.p50_ns, times.p90_ns, times.p99_ns, times.max_ns) == (50, 90, 99, 100)
    assert times.times_ns == tuple(range(100, 0, -1))


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50))
def test_quantiles_are_in_order(times_ns):
    times = TimeDistribution.of("stage", times_ns)
    assert times.p50_ns <= times.p90_ns <= times.p99_ns <= times.max_ns == max(times_ns)
    assert {times.p50_ns, times.p90_ns, times.p99_ns} <= set(times_ns)
    assert min(times_ns) <= times.mean_ns <= times.max_ns


def test_the_last_times_are_kept_and_the_quantiles_are_of_all():
    times = TimeDistribution.of("stage", [1] * KEPT_TIMES + [2])
    assert times.times_ns == (*[1] * (KEPT_TIMES - 1), 2)
    assert (times.count, times.max_ns) == (KEPT_TIMES + 1, 2)


def test_no_time_is_no_distribution():
    with pytest.raises(ValueError, match="at least one"):
        TimeDistribution.of("stage", [])


# -- trial -------------------------------------------------------------------------------------


class SteppingClock(VirtualClock):
    def step(self, time_ns):
        self._now_ns += time_ns


def make_frames(count):
    return [Frame(np.zeros((2, 3, 3), np.uint8), "bgr8", 0, n) for n in range(count)]


def found(work):
    work.result = Detections(
        np.zeros((1, 4), np.float32),
        np.zeros(1, np.float32),
        np.array([work.frame.sequence], np.int64),
    )


class Fake:
    """Stages around memory of a given size."""

    def __init__(self, run, memory_bytes=0):
        self.memory = np.ones(memory_bytes, np.uint8)
        self.stages = (Stage("inference", run), Stage("decode", found))
        self.closed = 0

    def close(self):
        self.closed += 1
        self.memory = np.zeros(0, np.uint8)


def test_a_trial_gives_every_frame_s_result_and_the_times():
    clock = SteppingClock()
    frames = make_frames(3)
    runs: list[int] = []

    def run(work):
        runs.append(work.frame.sequence)
        clock.step(10 + work.frame.sequence if len(runs) > 3 + DISCARDED_RUNS else 10_000)

    trial = try_variant(lambda: Fake(run), frames, runs=6, clock=clock)
    ids = [result.class_ids.tolist() for result in trial.results if isinstance(result, Detections)]
    assert ids == [[0], [1], [2]]
    assert trial.total.times_ns == (10, 11, 12, 10, 11, 12)
    assert [stage.name for stage in trial.stages] == ["inference", "decode"]
    assert trial.stages[0].times_ns == trial.total.times_ns
    assert trial.stages[1].max_ns == 0


def test_memory_is_what_closing_gives_back():
    clock = SteadyClock()
    size = 64 * MIB
    trial = try_variant(lambda: Fake(lambda work: None, size), make_frames(1), runs=1, clock=clock)
    # Threads of other tests take and give back memory meanwhile.
    assert size - 16 * MIB <= trial.memory_bytes <= size + 16 * MIB
    small = try_variant(lambda: Fake(lambda work: None), make_frames(1), runs=1, clock=clock)
    assert small.memory_bytes < 16 * MIB


@pytest.mark.parametrize(
    ("failing_run", "stages", "words"),
    [
        (2, 2, "on frame 1: out of memory"),
        (0, 1, "on frame 0: there is no result"),
        (5, 2, "while it is timed: out of memory"),
    ],
)
def test_a_variant_that_fails_is_closed_and_said(failing_run, stages, words):
    runs: list[int] = []

    def run(work):
        runs.append(1)
        if len(runs) == failing_run:
            raise RuntimeError("out of memory")

    fake = Fake(run)
    fake.stages = fake.stages[:stages]
    with pytest.raises(ModelError, match=words):
        try_variant(lambda: fake, make_frames(2), runs=9, clock=VirtualClock())
    assert fake.closed == 1


def test_a_rival_is_timed_in_turn_and_stays_open():
    clock = SteppingClock()
    ran: list[str] = []

    def make(name, time_ns):
        def run(work):
            ran.append(name)
            clock.step(time_ns)

        return Fake(run)

    rival = make("rival", 7)
    trial = try_variant(lambda: make("it", 5), make_frames(1), runs=4, clock=clock, rival=rival)
    assert (trial.total.times_ns, trial.rival.times_ns) == ((5,) * 4, (7,) * 4)
    assert ran[1:5] == ["it", "rival", "rival", "it"]
    assert rival.closed == 0


def test_a_trial_needs_frames_and_runs():
    for frames, runs in (([], 1), (make_frames(1), 0)):
        with pytest.raises(ValueError, match="at least one"):
            try_variant(lambda: Fake(found), frames, runs=runs, clock=VirtualClock())


# -- rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time_ms", "memory", "accepted"),
    [
        (4.0, 10**7, True),
        (5.0, 9 * 10**6, True),
        (50.0, 9 * 10**6, True),
        (4.0, 10**8, True),
        (5.0, 10**7, False),
        (6.0, 10**8, False),
        # Within the margin of two measurements.
        (4.95, 99 * 10**5, False),
    ],
)
def test_what_is_neither_faster_nor_lighter_is_refused(time_ms, memory, accepted):
    reason = decide(make(TUCKER, time_ms, memory, agreement=1.0), make(FULL))
    assert (reason == "") is accepted
    if not accepted:
        assert reason == (
            f"neither faster nor lighter than full@torch-fp32: {time_ms:.2f} ms against 5.00, "
            f"{memory / 1e6:.1f} MB against 10.0"
        )


def test_memory_of_the_device_counts():
    full = make(FULL, device=10**9)
    assert decide(make(TUCKER, 5.0, 10**7, 5 * 10**8, agreement=1.0), full) == ""
    assert decide(make(TUCKER, 5.0, 5 * 10**6, 10**9, agreement=1.0), full) != ""


@pytest.mark.parametrize("time_ms", [4.95, 5.0, 50.0])
def test_what_is_not_faster_and_differs_is_refused_whatever_it_weighs(time_ms):
    reason = decide(make(TUCKER, time_ms, memory=1, agreement=0.999), make(FULL))
    assert reason == (
        f"not faster than full@torch-fp32: {time_ms:.2f} ms against 5.00, 0.0 MB against 10.0, "
        "and its results differ (0.999 mAP@0.5)"
    )
    # As it is printed: 1.000.
    assert decide(make(TUCKER, time_ms, memory=1, agreement=0.9996), make(FULL)) == ""


@pytest.mark.parametrize(
    ("name", "value", "least", "words"),
    [
        ("tucker-0.93@openvino-fp32", 0.183, 0.9, "agrees 0.183 mAP@0.5 .*--recover-steps"),
        ("full@openvino-int8", 0.5, 0.9, "0.500 mAP@0.5 .*at least 0.9 .*--agreement"),
        ("full@openvino-bf16", 0.5, 0.9, "try: fp32"),
        ("tucker-0.93@openvino-fp32", 0.95, 0.96, "at least 0.96"),
        ("tucker-0.93@openvino-fp32", None, 0.9, "unknown: no boxes in 50 frames; fix: frames"),
        ("tucker-0.93@openvino-fp32", 0.8996, 0.9, ""),  # printed as 0.900
        ("tucker-0.93@openvino-fp32", 0.183, 0.1, ""),
        ("tucker-0.93@openvino-fp32", 0.0, 0.0, ""),
        ("tucker-0.93@openvino-fp32", None, 0.0, ""),
        ("full@onnxruntime-fp32", 0.5, 0.9, ""),  # the full model itself
    ],
)
def test_what_agrees_too_little_is_refused_with_what_to_try(name, value, least, words):
    spec, evidence = VariantSpec.parse(name), 0 if value is None else 9
    agreement = Agreement(value, "mAP@0.5", 50, evidence, "full@openvino-fp32")
    reason = find_refusal(spec, None, agreement, least)
    assert re.search(words, reason) if words else reason == ""
    measured = replace(make(spec), agreement=agreement)
    assert find_refusal(spec, measured, agreement, least) == reason
    assert find_refusal(spec, measured.refuse("slow"), agreement, least) == "slow"
    assert find_refusal(spec, None, None, least) == ""


@pytest.mark.parametrize(
    ("name", "refusable"),
    [
        ("full@torch-bf16", True),
        ("full@tensorrt-fp16", True),
        ("full@tensorrt_dla0-fp16", True),
        ("svd-energy-0.90@openvino-fp32", True),
        ("full@torch-fp32", False),
        ("full@openvino-fp32", False),
        ("full@null", False),
    ],
)
def test_only_what_approximates_can_be_refused(name, refusable):
    spec = VariantSpec.parse(name)
    reference = reference_of(spec)
    # A DLA core computes in fp16 only.
    backend = "tensorrt" if name == "full@tensorrt_dla0-fp16" else spec.backend
    assert reference == VariantSpec("full", backend, "fp32")
    slow = make(spec, 9.0)
    assert (decide(slow, make(reference)) != "") is refusable


# -- JSON --------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", ["", "neither faster nor lighter"])
def test_a_measurement_comes_back_from_json(refused):
    measurement = make(TUCKER).refuse(refused)
    for each in (measurement, dataclasses.replace(measurement, agreement=None, macs=None)):
        assert Measurement.from_json(json.loads(json.dumps(each.to_json()))) == each
    assert measurement.parameter_bytes == 4000
    assert make(VariantSpec.parse("full@torch-bf16")).parameter_bytes == 2000


@pytest.mark.parametrize(
    "change",
    [
        {"variant": "fast"},
        {"variant": None},
        {"total": {}},
        {"total": None},
        {"stages": 3},
        {"stages": [{"name": "a"}]},
        {"memory_bytes": -1},
        {"memory_bytes": 1.5},
        {"memory_bytes": True},
        {"threads": "2"},
        {"macs": -1},
        {"frame_size": [480]},
        {"frame_size": ["480", "640"]},
        {"agreement": {"value": 1.5, "metric": "", "frames": 1, "evidence": 1, "reference": ""}},
        {"agreement": {"value": 1.0}},
        {"machine": None},
        {"date": "yesterday"},
        {"date": "2026-01-01T00:00:00"},
        {"refused": None},
        {"more": 1},
    ],
    ids=str,
)
def test_what_is_no_measurement_is_refused(change):
    value = {**json.loads(json.dumps(make(TUCKER).to_json())), **change}
    with pytest.raises(ValueError, match=r"\w"):
        Measurement.from_json(value)


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(TimeDistribution)])
def test_times_that_cannot_be_are_refused(field):
    value = json.loads(json.dumps(make(TUCKER).to_json()))
    value["total"][field] = [-1] if field == "times_ns" else -1
    with pytest.raises(ValueError, match=r"\w"):
        Measurement.from_json(value)


def test_the_machine_is_named():
    machine = make(FULL).machine
    assert machine["cpu"]
    assert machine["cores"] >= 1
    assert "jetson_dnn_rt" in machine["versions"]


def test_memory_that_is_free_does_not_count():
    start, device = measure_memory()
    assert start > 0
    assert device == 0
    # Small pieces stay in the allocator's heap when they are freed, until it is trimmed.
    pieces = [np.ones(10_000, np.uint8) for _ in range(4_000)]
    full, _ = measure_memory()
    assert full - start > 30 * MIB
    pieces.clear()
    assert full - measure_memory()[0] > 30 * MIB


def test_cold_runs_are_discarded_and_every_stage_is_timed():
    clock = SteppingClock()
    runs = []

    def first(work):
        runs.append(work)
        clock.step(1000 if len(runs) <= DISCARDED_RUNS else 5)

    stages = [Stage("first", first), Stage("second", lambda work: clock.step(7))]
    assert measure_stages(stages, make_frames(1), 2, clock) == [(5, 7), (5, 7)]
    assert len(runs) == 2 + DISCARDED_RUNS
    assert len(set(map(id, runs))) == len(runs)


@pytest.mark.parametrize(("runs", "expected"), [(0, []), (4, [0, 1, 2, 0, 1, 2, 0])])
def test_frames_are_taken_in_turn(runs, expected):
    seen = []
    stages = [Stage("only", lambda work: seen.append(work.frame.sequence))]
    measure_stages(stages, make_frames(3), runs, SteppingClock())
    assert seen == expected


def boxes(*rows):
    array = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(array[:, :4], array[:, 4], array[:, 5].astype(np.int64))


def mask(rows):
    return Segmentation(np.array(rows, np.uint8))


def classes(*ids):
    return Classification(np.array(ids, np.int64), np.full(len(ids), 0.1, np.float32))


def agreement(kind, full, variant):
    return compare(kind, full, variant, "full").value


CAR = (10, 10, 50, 50, 0.9, 2)
PERSON = (60, 10, 80, 90, 0.8, 0)


def test_the_same_boxes_agree_wholly():
    full = [boxes(CAR, PERSON), boxes(), boxes(CAR)]
    found = compare("detection", full, full, "full@torch-fp32")
    assert found == Agreement(1.0, "mAP@0.5", 3, 3, "full@torch-fp32")


@pytest.mark.parametrize(
    ("found", "value"),
    [
        # One of two classes is missed.
        (boxes(CAR), 0.5),
        # A box of the right place and the wrong class.
        (boxes(CAR, (60, 10, 80, 90, 0.8, 2)), 0.5),
        # Moved by 4 of 40 pixels, IoU 36 / 44; by 20, IoU 20 / 60.
        (boxes((14, 10, 54, 50, 0.9, 2), PERSON), 1.0),
        (boxes((30, 10, 70, 50, 0.9, 2), PERSON), 0.5),
        # A ghost that is surer than the car halves its precision, one that is less sure does not.
        (boxes((100, 100, 120, 120, 0.95, 2), CAR, PERSON), 0.75),
        (boxes((100, 100, 120, 120, 0.1, 2), CAR, PERSON), 1.0),
        (boxes(), 0.0),
    ],
)
def test_boxes_that_differ(found, value):
    assert agreement("detection", [boxes(CAR, PERSON)], [found]) == pytest.approx(value)


def test_a_box_in_another_frame_is_no_agreement():
    assert agreement("detection", [boxes(CAR), boxes()], [boxes(), boxes(CAR)]) == 0.0


@pytest.mark.parametrize("found", [boxes(), boxes(CAR)])
def test_where_the_full_model_sees_nothing_the_agreement_is_unknown(found):
    result = compare("detection", [boxes()] * 3, [found] * 3, "full")
    assert (result.value, result.evidence) == (None, 0)
    assert str(result) == "unknown: no boxes in 3 frames"
    assert read_record(Agreement, asdict(result)) == result


@pytest.mark.parametrize("stored", [1.0, 0.0])
def test_an_agreement_that_was_stored_without_evidence_is_unknown(stored):
    """Earlier versions wrote 1.0 where both networks found nothing."""
    fields = {"metric": "mAP@0.5", "frames": 20, "evidence": 0, "reference": str(FULL)}
    assert read_record(Agreement, {"value": stored, **fields}).value is None


def test_masks_of_one_class_everywhere_are_nothing_to_agree_on():
    road = mask([[1, 1], [1, 1]])
    same = compare("segmentation", [road, road], [road, road], "full")
    assert (same.value, str(same)) == (None, "unknown: one class in 2 frames")
    # The class changes from frame to frame: a network that cannot tell them apart would differ.
    sky = mask([[2, 2], [2, 2]])
    assert agreement("segmentation", [road, sky], [road, sky]) == 1.0


def test_masks():
    full = [mask([[0, 0], [1, 2]])]
    same = compare("segmentation", full, full, "full")
    assert (same.value, same.metric, same.evidence) == (1.0, "mIoU", 3)
    # Of class 0 two of three, of class 1 none of one, of class 2 all.
    assert agreement("segmentation", full, [mask([[0, 0], [0, 2]])]) == pytest.approx(5 / 9)
    # A class that the full model does not know counts against the variant.
    assert agreement("segmentation", full, [mask([[0, 7], [1, 2]])]) == pytest.approx(2.5 / 4)


def test_masks_of_all_frames_count_together():
    full = [mask([[1, 1]]), mask([[1, 0]])]
    variant = [mask([[1, 1]]), mask([[0, 0]])]
    assert agreement("segmentation", full, variant) == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_several_masks_count_alike_each_with_its_own_classes():
    def pair(first, second):
        both = mask(first)
        both.others = (mask(second),)
        return both

    full = [pair([[1, 1, 0, 0]], [[0, 0, 0, 2]])]
    assert compare("segmentation", full, full, "full").evidence == 4
    # The first is the same; of the second class 2 is lost, and class 0 has three of four.
    variant = [pair([[1, 1, 0, 0]], [[0, 0, 0, 0]])]
    assert agreement("segmentation", full, variant) == pytest.approx((1 + (0.75 + 0) / 2) / 2)
    with pytest.raises(ValueError, match="shorter"):
        agreement("segmentation", full, [mask([[1, 1, 0, 0]])])


def test_best_classes():
    full = [classes(3, 1), classes(5), classes(7), classes()]
    variant = [classes(3, 9), classes(6), classes(), classes()]
    found = compare("classification", full, variant, "full")
    assert (found.value, found.metric, found.evidence) == (0.5, "top-1", 4)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="kind must be one of"):
        agreement("depth", [boxes()], [boxes()])
    with pytest.raises(ValueError, match="at least one: 0, 0"):
        agreement("detection", [], [])
    with pytest.raises(ValueError, match="equally many"):
        agreement("detection", [boxes()], [boxes(), boxes()])
    with pytest.raises(TypeError, match="Detections is expected, not Segmentation"):
        agreement("detection", [boxes()], [mask([[0]])])
    with pytest.raises(ValueError, match="one shape"):
        agreement("segmentation", [mask([[0]])], [mask([[0, 0]])])
