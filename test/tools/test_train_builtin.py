# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The training of the built-in networks: its data, its targets, and that it can be resumed."""

import cv2
import numpy as np
import pytest
import torch

from jetson_dnn_rt.errors import ModelError

train_builtin = pytest.importorskip("train_builtin")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    threads = cv2.getNumThreads()
    train_builtin.open_cache(folder, 12, "w+")
    for part in range(2):
        train_builtin.fill_cache(folder, 12, 0, part, 2)
    cv2.setNumThreads(threads)
    return train_builtin.open_cache(folder, 12, "r")


def test_cache_holds_the_scenes_in_order_whatever_the_parts(cache):
    for index in (0, 5, 11):
        image, mask, boxes = train_builtin.render_scene(index, 0)
        assert np.array_equal(cache.images[index], image)
        assert np.array_equal(cache.masks[index], mask)
        assert np.array_equal(cache.boxes[index][cache.boxes[index, :, 4] >= 0], boxes)


def test_padding_is_marked_and_boxes_lie_outside_it():
    wide = 0
    for index in range(12):
        image, mask, boxes = train_builtin.render_scene(index, 0)
        padding = mask == train_builtin.IGNORE
        assert (image[padding] == 114).all()
        assert (mask[~padding] < 8).all()
        rows = np.flatnonzero(~padding.all(1))
        assert (boxes[:, 3] <= rows[-1] + 1.5).all()
        wide += bool(padding.any())
    assert 0 < wide < 12


def test_batches_stay_consistent_when_augmented(cache):
    """People and vehicles of the mask stay where the boxes are, mirrored and scaled."""
    images, masks, boxes = train_builtin.take_batch(
        cache, np.arange(12).repeat(4), np.random.default_rng(0)
    )
    assert images.shape == (48, 3, train_builtin.HEIGHT, train_builtin.WIDTH)
    assert 0.0 <= float(images.min()) <= float(images.max()) <= 1.0
    inside = total = 0
    for mask, found in zip(masks.numpy(), boxes, strict=True):
        covered = np.zeros(mask.shape, bool)
        for x0, y0, x1, y1, kind in found:
            if 0 <= kind < 4:
                covered[int(y0) : int(np.ceil(y1)), int(x0) : int(np.ceil(x1))] = True
        own = (mask == 6) | (mask == 7)
        inside += np.count_nonzero(own & covered)
        total += np.count_nonzero(own)
    assert inside > 0.9 * total > 0


def test_detector_targets_of_two_boxes():
    boxes = np.full((1, 3, 5), -1.0, np.float32)
    boxes[0, 0] = (4, 4, 20, 20, 1)  # centre 12, 12: cell 1, 1
    boxes[0, 1] = (200, 100, 296, 180, 0)  # centre 248, 140: cells 30 and 31, 17
    heat, target, weight = train_builtin.detector_targets(boxes, 5)
    columns = train_builtin.WIDTH // train_builtin.STRIDE
    near, far = columns + 1, 17 * columns + 30
    assert heat.shape == (1, 1200, 5)
    assert heat[0, near].tolist() == [pytest.approx(0.0, abs=1e-6), 1, 0, 0, 0]
    assert heat[0, far].tolist() == [1, pytest.approx(0.0, abs=1e-6), 0, 0, 0]
    assert (heat == 1).sum() == 2
    assert target[0, near].tolist() == [4, 4, 20, 20]
    assert target[0, far].tolist() == [200, 100, 296, 180]
    assert weight[0, near] == 1
    assert weight[0, 0] < 0.2


def test_giou_of_known_boxes():
    a = torch.tensor([[0.0, 0.0, 2.0, 2.0]] * 3)
    b = torch.tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0], [4.0, 0.0, 6.0, 2.0]])
    # Same: 1. Shifted by half: 1/3, the hull has nothing more. Apart: 0 - 4/12.
    expected = torch.tensor([1.0, 1 / 3, -1 / 3])
    torch.testing.assert_close(train_builtin.giou(a, b), expected)


@pytest.mark.parametrize("name", ["detector", "segmenter"])
def test_a_resumed_training_ends_the_same(name, cache, tmp_path):
    whole = train_builtin.Training(name, cache, seed=1, steps=3, batch=2)
    losses = [whole.step() for _ in range(3)]
    assert np.isfinite(losses).all()
    first = train_builtin.Training(name, cache, seed=1, steps=3, batch=2)
    first.step()
    first.save(tmp_path / "state.pt")
    second = train_builtin.Training(name, cache, seed=1, steps=3, batch=2)
    second.restore(tmp_path / "state.pt")
    assert second.done == 1
    assert [second.step() for _ in range(2)] == losses[1:]
    for module in ("network", "average"):
        expected, found = (getattr(t, module).state_dict() for t in (whole, second))
        assert all(torch.equal(expected[key], found[key]) for key in expected)
    train_builtin.write_weights(second, tmp_path)
    loaded = train_builtin.builtin.load(name, tmp_path / f"builtin_{name}.onnx")
    assert not loaded.training


def test_a_narrow_network_replaces_no_shipped_one(capsys):
    with pytest.raises(SystemExit, match="2"):
        train_builtin.main(["--width", "0.7"])
    assert "give another --output" in capsys.readouterr().err


@pytest.mark.parametrize("width", ["7", "0", "-1", "nan"])
def test_a_width_that_no_network_has_is_refused_before_scenes_are_made(
    width, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(train_builtin, "make_cache", lambda *args: pytest.fail("scenes are made"))
    with pytest.raises(SystemExit, match="2"):
        train_builtin.main([f"--width={width}", "--output", str(tmp_path)])
    assert f"--width must be above 0 and at most 4, got {width}" in capsys.readouterr().err


@pytest.mark.parametrize("width", ["nan", "0", "1000", "wide"])
def test_a_width_that_cannot_be_is_refused(width, tmp_path):
    import onnx

    model = onnx.load_model_from_string(train_builtin.builtin.read("detector"))
    about = {entry.key: entry.value for entry in model.metadata_props}
    onnx.helper.set_model_props(model, {**about, train_builtin.builtin.WIDTH: width})
    path = tmp_path / "builtin_detector.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"builtin:detector are damaged: .*wid"):
        train_builtin.builtin.load("detector", path)
