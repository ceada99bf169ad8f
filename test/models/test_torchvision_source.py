# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Architectures of torchvision: their weights, and what is refused."""

from __future__ import annotations

import pickle
import zipfile
from urllib.error import URLError

import pytest
import safetensors.torch
import torch
from malice import Malicious
from networks import Classifier
from torchvision.models import MobileNet_V3_Small_Weights, get_model

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.labels import COCO_91
from jetson_dnn_rt.models.sources.registry import load_model

SMALL = "torchvision:mobilenet_v3_small"


def test_torchvision_random_weights_are_the_same_each_time():
    state = torch.random.get_rng_state()
    one = load_model(SMALL, weights="none", kind="classification")
    other = load_model(SMALL, weights="none")
    assert torch.equal(state, torch.random.get_rng_state())
    assert one.model_hash == other.model_hash
    assert (one.kind, one.input_size, len(one.labels)) == ("classification", (224, 224), 1000)
    assert one.preprocessing.resize == "stretch"
    assert one.preprocessing.mean == (0.485, 0.456, 0.406)


def test_torchvision_detector_is_what_torchvision_computes():
    """Its own resize and normalisation were taken out: the boxes must be the same."""
    name = "ssdlite320_mobilenet_v3_large"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = get_model(name, weights=None, weights_backbone=None).eval()
    image = torch.rand(3, 320, 320, generator=torch.Generator().manual_seed(5))
    ours = load_model(f"torchvision:{name}", weights="none")
    assert (ours.head.name, ours.input_size) == ("torchvision", (320, 320))
    assert ours.labels == COCO_91
    assert ours.preprocessing.mean == ours.preprocessing.std == (0.5, 0.5, 0.5)
    with torch.inference_mode():
        expected = theirs([image])[0]
        boxes, labels, scores = ours.torch_module()(((image - 0.5) / 0.5)[None])
    torch.testing.assert_close(boxes, expected["boxes"])
    torch.testing.assert_close(scores, expected["scores"])
    assert torch.equal(labels, expected["labels"])


def test_torchvision_weights_from_a_file(tmp_path):
    names = ["car", "truck", "van"]
    module = get_model("mobilenet_v3_small", weights=None, num_classes=3)
    torch.save(module.state_dict(), tmp_path / "w.pth")
    torch.save({"state_dict": module.state_dict(), "epoch": 3}, tmp_path / "checkpoint.pth")
    safetensors.torch.save_file(module.state_dict(), tmp_path / "w.safetensors")
    models = [
        load_model(SMALL, weights=str(path), labels=names) for path in sorted(tmp_path.iterdir())
    ]
    assert len(models) == 3
    assert len({model.model_hash for model in models}) == 1
    assert models[0].labels == tuple(names)
    image = torch.rand(1, 3, 224, 224)
    with torch.inference_mode():
        torch.testing.assert_close(models[0].torch_module()(image), module.eval()(image))


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_weights_that_do_not_fit(tmp_path, name):
    save = safetensors.torch.save_file if name.endswith("safetensors") else torch.save
    path = tmp_path / name

    def refuse(words):
        with pytest.raises(ModelError, match=words):
            load_model(SMALL, weights=str(path))

    save(get_model("mobilenet_v3_small", weights=None, num_classes=3).state_dict(), path)
    refuse(r"of another network: size mismatch.*give labels")
    save(Classifier().state_dict(), path)
    refuse(r"of another network: \d+ names differ")
    path.write_bytes(path.read_bytes()[:-300])
    refuse("damaged")
    path.write_bytes(b"")
    refuse("is empty")
    path.unlink()
    refuse("does not exist")


def test_a_name_of_a_megabyte_in_weights_takes_no_hours(tmp_path):
    """Found by fuzz: torch searched its own error's text in a time that is quadratic in it."""
    path = tmp_path / "w.pth"
    torch.save({"weight": torch.zeros(3)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    (name,) = (name for name in members if name.endswith("data.pkl"))
    members[name] = b"\x80\x02c" + 1_000_000 * b"a" + b"\nx\n."
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(ModelError, match="refused, the file holds more than tensors") as raised:
        load_model(SMALL, weights=str(path))
    assert len(str(raised.value)) < 1000


def test_pickled_code_is_refused_and_not_run(tmp_path):
    trap = tmp_path / "trap"
    torch.save({"weight": torch.zeros(3), "extra": Malicious(trap)}, tmp_path / "w.pth")
    (tmp_path / "raw.pth").write_bytes(pickle.dumps(Malicious(trap)))
    torch.save(Classifier(), tmp_path / "module.pth")
    for name in ("w.pth", "raw.pth", "module.pth"):
        with pytest.raises(ModelError, match="refused, the file holds more than tensors"):
            load_model(SMALL, weights=str(tmp_path / name))
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ModelError, match="not a state dictionary"):
        load_model(SMALL, weights=str(tmp_path / "list.pth"))
    assert not trap.exists()


def test_default_weights_without_a_network(tmp_path, monkeypatch):
    def fail(*arguments, **keywords):
        raise URLError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    with pytest.raises(ModelError, match=r"cannot be fetched .*no route.*mobilenet_v3_small"):
        load_model(SMALL)


def test_default_weights_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    path = folder / MobileNet_V3_Small_Weights.DEFAULT.url.rsplit("/", 1)[1]
    module = get_model("mobilenet_v3_small", weights=None)
    torch.save(module.state_dict(), path)
    model = load_model(SMALL)
    assert model.labels[0] == "tench"
    image = torch.rand(1, 3, 224, 224)
    with torch.inference_mode():
        torch.testing.assert_close(model.torch_module()(image), module.eval()(image))
    torch.save({"a": Malicious(tmp_path / "trap")}, path)
    with pytest.raises(ModelError, match="refused, the file holds more"):
        load_model(SMALL)
    assert not (tmp_path / "trap").exists()
