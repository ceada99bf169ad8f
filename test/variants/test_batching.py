# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Batches of several tasks: the same results as one by one, what is copied, what is refused."""

from __future__ import annotations

from contextlib import closing, contextmanager

import numpy as np
import pytest
import torch
from batch_cameras import FRAME, Cameras
from networks import BrightColumns, calibrate, make_model, skip_on_gpu

from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import NotANumberError
from jetson_dnn_rt.models.heads.base import Inspected
from jetson_dnn_rt.models.heads.registry import recognise_head
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.model import Model, make_probe_input
from jetson_dnn_rt.models.sources.torch import TorchOrigin
from jetson_dnn_rt.results import Detections
from jetson_dnn_rt.variants.running.batching import BatchGroup, BatchReport
from jetson_dnn_rt.variants.running.variant_set import VariantSet

SIZE = (32, 48)
TORCH, ONNX, OPENVINO = "full@torch-fp32", "full@onnxruntime-fp32", "full@openvino-fp32"


class Pyramid(torch.nn.Module):
    """Maps of two strides that both reach the end, so that values skip a stage."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.first = torch.nn.Sequential(
                torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
            )
            self.second = torch.nn.Sequential(
                torch.nn.Conv2d(8, 8, 3, 1, 1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
            )
            self.third = torch.nn.Conv2d(8, 4, 3, 1, 1)
            self.side = torch.nn.Conv2d(8, 4, 1)

    def forward(self, image):
        low = self.first(image)
        return self.third(self.second(low)) + self.side(low)


class EarlyBoxes(torch.nn.Module):
    """Boxes that are there before the long way to the scores begins."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(6)
            self.boxes = torch.nn.Conv2d(3, 4, 8, 8)
            self.way = torch.nn.Sequential(
                torch.nn.Conv2d(3, 24, 3, 1, 1), torch.nn.Conv2d(24, 24, 3, 1, 1)
            )
            self.scores = torch.nn.Conv2d(24, 5, 8, 8)

    def forward(self, image):
        low = self.boxes(image).flatten(2).transpose(1, 2)
        boxes = torch.cat((low, low + 20.0), -1)[..., 2:6]
        scores = torch.sigmoid(self.scores(self.way(image)))
        return boxes, scores.flatten(2).transpose(1, 2)


class Mixer(torch.nn.Module):
    """Each picture less the mean of all: no batch gives what one by one gives."""

    def forward(self, image):
        return torch.nn.functional.avg_pool2d(image - image.mean(0, keepdim=True) * 0.5, 4)


@pytest.fixture(scope="module")
def model():
    return make_model(calibrate(Pyramid().eval(), SIZE), SIZE)


@pytest.fixture(params=[TORCH, ONNX, OPENVINO], scope="module")
def name(request):
    backend = request.param.partition("@")[2].partition("-")[0]
    if not inspect_backend(backend).available:
        pytest.skip(f"{backend} is not installed")
    return str(request.param)


@contextmanager
def prepare(model, name, stages=1):
    """Three cameras with batches of every size."""
    with closing(Cameras(model, [name], 3, stages)) as made:
        reports = made.group.prepare(FRAME, 1)
        assert [(report.size, report.refusal) for report in reports] == [(2, ""), (3, "")]
        yield made


@pytest.fixture(scope="module")
def cameras(model, name):
    with prepare(model, name) as made:
        yield made


@pytest.fixture(scope="module")
def staged(model, name):
    """The same with the network in two stages."""
    with prepare(model, name, stages=2) as made:
        yield made


@pytest.fixture(scope="module")
def early(name):
    """A network in two stages, of which the first returns something already."""
    model = make_model(EarlyBoxes().eval(), SIZE)
    assert model.head.name == "boxes_scores"
    with prepare(model, name, stages=2) as made:
        yield made


def equal(one, other):
    np.testing.assert_array_equal(one.mask, other.mask)


def test_every_size_is_found(cameras, name):
    assert [(r.variant, r.size, r.used) for r in cameras.group.reports] == [
        (name, 2, True),
        (name, 3, True),
    ]
    for report in cameras.group.reports:
        assert report.batch_ns > 0
        assert report.single_ns > 0
        assert [len(times) for times in report.times_ns] == [1]


@pytest.mark.parametrize("slots", [(0, 1, 2), (2, 0, 1), (0, 1), (2, 1), (2, 0)])
def test_results_are_those_of_each_alone(cameras, name, slots):
    """Whoever leads and whoever is missing."""
    expected = {slot: cameras.run_alone(slot, name) for slot in slots}
    works = [cameras.work(slot, name) for slot in slots]
    cameras.run_batch(name, works, slots[0])
    for slot, work in zip(slots, works, strict=True):
        equal(cameras.decode(slot, name, work), expected[slot])
    assert len({expected[slot].mask.tobytes() for slot in slots}) == len(slots)  # frames differ


def copied(cameras, name, slots):
    """Bytes that a batch of these copies for each, besides what preprocessing writes."""
    works = [cameras.work(slot, name) for slot in slots]
    before = [work.copied_bytes for work in works]
    cameras.run_batch(name, works, slots[0])
    return [work.copied_bytes - one for work, one in zip(works, before, strict=True)]


def test_a_full_batch_copies_nothing(cameras, name):
    if name == TORCH:
        skip_on_gpu("inputs are copied to it")
    assert copied(cameras, name, (1, 0, 2)) == [0, 0, 0]


def test_copies_of_partial_batches_are_counted(cameras, name):
    """Inputs that lie apart; outputs of runners that would write over them."""
    if name == TORCH:
        skip_on_gpu("inputs are copied to it")
    image, logits = 4 * 3 * SIZE[0] * SIZE[1], 4 * 4 * (SIZE[0] // 2) * (SIZE[1] // 2)
    outputs = 0 if name == TORCH else logits  # torch gives new arrays each time
    assert copied(cameras, name, (0, 1)) == [outputs] * 2
    assert copied(cameras, name, (2, 1)) == [outputs] * 2
    assert copied(cameras, name, (0, 2)) == [image + outputs] * 2


def test_a_member_may_decode_after_the_next_batch_of_that_size(cameras, name):
    """Task 1 is late: tasks 0 and 2 have gone on to their next frames together."""
    late = cameras.run_alone(1, name)
    works = [cameras.work(slot, name) for slot in (0, 1)]
    cameras.run_batch(name, works, 0)
    cameras.decode(0, name, works[0])
    cameras.run_batch(name, [cameras.work(slot, name, sequence=1) for slot in (0, 2)], 0)
    equal(cameras.decode(1, name, works[1]), late)


@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("slots", [(0, 1, 2), (2, 0)])
def test_stages_run_together_or_alone_in_any_order(staged, name, slots, batched):
    """A value that skips a stage, members that part and meet again."""
    assert len(staged.stages(0, name)) == 4
    expected = {slot: staged.run_alone(slot, name) for slot in slots}
    works = [staged.work(slot, name) for slot in slots]
    for index, together in enumerate(batched):
        if together:
            staged.run_batch(name, works, slots[0], 1 + index)
        else:
            for slot, work in zip(slots, works, strict=True):
                staged.stages(slot, name)[1 + index].run(work)
    for slot, work in zip(slots, works, strict=True):
        equal(staged.decode(slot, name, work), expected[slot])
    if batched == (True, True) and len(slots) == 3:
        alone = staged.work(0, name).copied_bytes
        assert [work.copied_bytes for work in works] == [alone] * 3


@pytest.mark.parametrize("slots", [(0, 1, 2), (1, 2)])
def test_what_an_early_stage_returns_reaches_the_end(early, name, slots):
    last = early.sets["camera_0"].pipelines[name].segments[-1].piece
    assert set(last.results) - set(last.outputs)  # the boxes
    expected = [early.run_alone(slot, name) for slot in slots]
    works = [early.work(slot, name) for slot in slots]
    for index in (1, 2):
        early.run_batch(name, works, slots[0], index)
    for slot, work, alone in zip(slots, works, expected, strict=True):
        result = early.decode(slot, name, work)
        assert len(result.scores) > 0
        np.testing.assert_allclose(result.boxes, alone.boxes, rtol=1e-4)
        np.testing.assert_allclose(result.scores, alone.scores, rtol=1e-4)


def test_what_is_not_faster_is_not_used(model):
    """Nor are larger ones tried after two in a row."""
    with closing(Cameras(model, [TORCH], 4, max_share=0.001)) as cameras:
        reports = cameras.group.prepare(FRAME, 1)
        refusal = "saves less than 99.9 %"
        assert [(r.size, r.refusal) for r in reports] == [(2, refusal), (3, refusal)]
        assert cameras.group.memory_bytes == 0


def test_a_report_says_what_was_measured():
    used = BatchReport(TORCH, 2, "", 15e6, 20e6, ((15_000_000,),), 3_000_000)
    assert str(used) == (
        "batches of 2 in full@torch-fp32: 15.00 ms, one by one 20.00 ms (-25%), 3 MB"
    )
    slower = BatchReport(TORCH, 2, "saves less than 20 %", 21e6, 20e6)
    assert str(slower) == (
        "batches of 2 in full@torch-fp32: 21.00 ms, one by one 20.00 ms (+5%); not used: "
        "saves less than 20 %"
    )
    other = BatchReport(TORCH, 2, "its outputs differ by 1, allowed are 0.001")
    assert str(other) == (
        "batches of 2 in full@torch-fp32: not used: its outputs differ by 1, allowed are 0.001"
    )


@pytest.mark.parametrize("name", [TORCH, ONNX])
def test_a_network_that_mixes_its_images_is_refused(name):
    with closing(Cameras(make_model(Mixer(), SIZE), [name], 2)) as cameras:
        (report,) = cameras.group.prepare(FRAME, 1)
        assert "its outputs differ by" in report.refusal
        assert cameras.group.memory_bytes == 0
        assert cameras.run_alone(0, name) is not None  # alone it goes on


def test_lists_of_boxes_are_refused():
    origin = TorchOrigin.of_module("test lists", BrightColumns(), SIZE)
    head = recognise_head(Inspected(origin.probe(make_probe_input(*SIZE)), SIZE))
    model = Model("test:lists", head, Preprocessing(*SIZE), ("a",) * 48, "0" * 64, origin)
    with closing(Cameras(model, [TORCH], 2)) as cameras:
        (report,) = cameras.group.prepare(FRAME, 1)
        assert report.refusal
        assert isinstance(cameras.run_alone(0, TORCH), Detections)


def test_memory_that_is_not_there_is_not_taken(model):
    with closing(Cameras(model, [ONNX], 2)) as cameras:
        (report,) = cameras.group.prepare(FRAME, 1, room_bytes=-1)
        assert "0 MB are left (memory_limit_mb)" in report.refusal


def test_without_measured_runs_there_are_no_batches(model):
    with closing(Cameras(model, [TORCH], 2)) as cameras:
        assert cameras.group.prepare(FRAME, 0) == []
        assert cameras.stages(0, TORCH)[1].run_batch is None


def test_tasks_that_are_cut_at_different_places_run_alone(model):
    sets = {
        name: VariantSet(TaskConfig(variants=(TORCH,), stages=stages), model)
        for name, stages in (("a", 1), ("b", 2))
    }
    group = BatchGroup(sets, workers=1, clock=SteadyClock())
    (report,) = group.prepare(FRAME, 1)
    assert report.refusal.startswith("the tasks cut the network at different places")
    assert sets["a"].pipelines[TORCH].stages[1].run_batch is None
    for variants in sets.values():
        variants.close()


def test_one_task_is_no_group(model):
    with pytest.raises(ValueError, match="needs two tasks"):
        Cameras(model, [TORCH], 1)


def test_nan_is_found_in_a_batch_once_it_was_seen(model):
    """Each task's own decoder finds it first; from then on the stage to blame is named."""
    with closing(Cameras(model, [TORCH], 2)) as cameras:
        cameras.group.prepare(FRAME, 1)
        works = [spoil(cameras), cameras.work(1, TORCH)]
        cameras.run_batch(TORCH, works, 0)
        with pytest.raises(NotANumberError, match="outputs hold NaN"):
            cameras.decode(0, TORCH, works[0])
        assert cameras.decode(1, TORCH, works[1]) is not None  # its frame is as good as any
        with pytest.raises(NotANumberError, match="a batch of 2"):
            cameras.run_batch(TORCH, [cameras.work(1, TORCH), spoil(cameras)], 0)


def spoil(cameras):
    """A frame of the first task that is no number in the input buffer."""
    work = cameras.work(0, TORCH)
    next(iter(cameras.sets.values())).pipelines[TORCH].processor.image[:] = np.nan
    return work
