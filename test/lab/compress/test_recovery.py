# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Recovery: the decomposed network learns the full one, can be stopped, and never gets worse."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from small_disk import fill, mount_small_disk
from torch import nn

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.lab.compress.recovery import (
    RecoverySettings,
    load_checkpoint,
    recover,
    save_checkpoint,
)
from jetson_dnn_rt.models.graph.tracing import trace

Inputs = list[npt.NDArray[np.float32]]
SETTINGS = RecoverySettings(learning_rate=5e-3, batch=4)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 4, 1)

    def forward(self, image):
        x = torch.relu(self.first(image))
        return self.last(torch.relu(self.second(x)))


def make_graph(kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return trace(kind())


def make_full():
    return make_graph(Network)


def make_reduced(full):
    """The second layer with half of its channels between, fitted to nothing."""
    reduced = copy.deepcopy(full)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        reduced.second = nn.Sequential(
            nn.Conv2d(8, 4, 1, bias=False),
            nn.Conv2d(4, 4, 3, padding=1, bias=False),
            nn.Conv2d(4, 8, 1),
        )
    return reduced


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(0)
    return [rng.random((1, 3, 12, 16), np.float32) for _ in range(20)]


def stop_at(step):
    def progress(phase, done, total):
        if done == step:
            raise KeyboardInterrupt

    return progress


def states_are_equal(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def output_error(full, reduced, image):
    with torch.no_grad():
        expected = full(torch.from_numpy(image))
        found = reduced(torch.from_numpy(image))
    return float((expected - found).square().mean() / expected.var())


def test_the_decomposed_network_learns_the_full_one(inputs):
    full = make_full()
    reduced = make_reduced(full)
    before = output_error(full, reduced, inputs[-1])
    teacher = copy.deepcopy(full)
    calls: list[tuple[str, int, int]] = []

    def progress(*call):
        calls.append(call)

    report = recover(full, reduced, inputs, steps=120, settings=SETTINGS, progress=progress)
    assert output_error(full, reduced, inputs[-1]) < 0.3 * before
    assert report.loss_after < 0.3 * report.loss_before
    assert (report.frames, report.held_out, report.resumed_from) == (10, 10, 0)
    assert 0 < report.best_step <= report.steps == 120
    assert calls == [("recovery", i, 120) for i in range(121)]
    assert states_are_equal(full, teacher)
    assert not any(p.requires_grad for p in reduced.parameters())
    assert not reduced.training


def test_what_was_best_on_held_out_frames_is_kept(inputs):
    """A rate that destroys the network: the state from before the first step stays."""
    full = make_full()
    reduced = copy.deepcopy(full)
    settings = RecoverySettings(learning_rate=10.0, weight_decay=0.0)
    report = recover(full, reduced, inputs, steps=5, settings=settings)
    assert (report.best_step, report.loss_before, report.loss_after) == (0, 0.0, 0.0)
    assert states_are_equal(reduced, full)


@pytest.mark.parametrize("step", [1, 7, 13])
def test_a_continued_run_ends_with_the_same_bits(inputs, tmp_path, step):
    full = make_full()
    whole, stopped, resumed = (make_reduced(full) for _ in range(3))
    settings = RecoverySettings(learning_rate=5e-3, batch=4, evaluations=7)
    expected = recover(full, whole, inputs, steps=14, settings=settings)
    file = tmp_path / "new" / "recovery.pt"
    given: dict[str, Any] = {"steps": 14, "settings": settings, "checkpoint": file}
    with pytest.raises(KeyboardInterrupt):
        recover(full, stopped, inputs, progress=stop_at(step), **given)
    report = recover(full, resumed, inputs, **given)
    assert report.resumed_from == step // 2 * 2
    assert states_are_equal(whole, resumed)
    resumed_from, seconds = report.resumed_from, report.seconds
    assert report == replace(expected, resumed_from=resumed_from, seconds=seconds)
    assert [f.name for f in file.parent.iterdir()] == ["recovery.pt"]


def test_another_seed_is_another_run(inputs):
    full = make_full()
    one, same, other = (make_reduced(full) for _ in range(3))
    for reduced, seed in ((one, 1), (same, 1), (other, 2)):
        recover(full, reduced, inputs, steps=4, seed=seed)
    assert states_are_equal(one, same)
    assert not states_are_equal(one, other)


@pytest.mark.parametrize("change", ["seed", "frames", "teacher", "damage"])
def test_a_checkpoint_that_does_not_fit_is_logged_and_not_used(inputs, tmp_path, caplog, change):
    file = tmp_path / "recovery.pt"
    full = make_full()
    recover(full, make_reduced(full), inputs, steps=4, checkpoint=file)
    given: dict[str, Any] = {"steps": 4, "seed": 0}
    if change == "seed":
        given["seed"] = 1
    elif change == "frames":
        inputs = [*inputs[:-1], inputs[0]]
    elif change == "teacher":
        with torch.no_grad():
            full.last.bias += 1.0
    else:
        file.write_bytes(file.read_bytes()[:-100])
    reduced, alone = make_reduced(full), make_reduced(full)
    report = recover(full, reduced, inputs, checkpoint=file, **given)
    assert report.resumed_from == 0
    assert ("is damaged" if change == "damage" else "is of another run") in caplog.text
    recover(full, alone, inputs, **given)
    assert states_are_equal(reduced, alone)


def test_a_checkpoint_on_a_full_disk_says_so_and_keeps_the_old_one(inputs, tmp_path):
    with mount_small_disk(tmp_path / "disk", 1 << 20) as disk:
        file = disk / "recovery.pt"
        save_checkpoint(file, "mine", {"weights": torch.zeros(4)})
        fill(disk)
        with pytest.raises(ConfigurationError, match="cannot be written: No space left"):
            save_checkpoint(file, "mine", {"weights": torch.ones(4000)})
        assert load_checkpoint(file, "mine")["weights"].tolist() == 4 * [0.0]
        assert [one.name for one in disk.iterdir() if "part" in one.name] == []


def test_a_checkpoint_runs_no_code_and_needs_a_place(tmp_path, caplog):
    file = tmp_path / "recovery.pt"
    torch.save({"fingerprint": "x", "state": Path("/")}, file)
    assert load_checkpoint(file, "x") is None
    assert "is damaged" in caplog.text
    with pytest.raises(ConfigurationError, match="cannot be written"):
        save_checkpoint(file / "below.pt", "x", {})


class OneByOne(nn.Module):
    """As exported for a batch of one: the flattened length is written into the graph."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, 2, 1)
        self.last = nn.Linear(4 * 6 * 8, 5)

    def forward(self, image):
        return self.last(torch.relu(self.first(image)).reshape(1, 4 * 6 * 8))


class Suppressing(nn.Module):
    """Returns what is above a threshold: lists of another length for every image."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, image):
        x = self.layer(image).flatten()
        return torch.masked_select(x, x > 0.0)


@pytest.mark.parametrize(("kind", "layer"), [(OneByOne, "first"), (Suppressing, "layer")])
def test_special_graphs_learn(kind, layer, inputs):
    """One image after the other; from the last layers if the results cannot be compared."""
    full = make_graph(kind)
    reduced = copy.deepcopy(full)
    with torch.no_grad():
        reduced.get_submodule(layer).weight *= 0.5
    report = recover(full, reduced, inputs, steps=60, settings=SETTINGS)
    assert report.loss_after < 0.5 * report.loss_before


class Counting(nn.Module):
    def forward(self, image):
        return image.argmax(1)


def test_what_cannot_be_learnt_is_an_error(inputs):
    counting = make_graph(Counting)
    with pytest.raises(ModelError, match="no value"):
        recover(counting, copy.deepcopy(counting), inputs, steps=1)
    full = make_full()
    reduced = make_reduced(full)
    with torch.no_grad():
        reduced.second[0].weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match="loss is nan at step 0"):
        recover(full, reduced, inputs, steps=1)


@pytest.mark.parametrize(("steps", "frames"), [(0, 5), (3, 1)])
def test_too_little_is_refused(inputs, steps, frames):
    full = make_full()
    with pytest.raises(ConfigurationError, match=f"{steps} steps, {frames} frames"):
        recover(full, make_reduced(full), inputs[:frames], steps=steps)
