# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The benchmark on small networks: what it measures, says and draws."""

import benches
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from benchmarks import paper000
from benchmarks.paper000 import export_yolov5
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.lab.profile.cold_start import ColdStart
from jetson_dnn_rt.models.sources.registry import load_model

HUB = """
import os
import torch


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Conv2d(3, 255, 1)

    def forward(self, image):
        maps = []
        for stride in (8, 16, 32):
            small = torch.nn.functional.avg_pool2d(image, stride)
            maps.append(self.head(small).reshape(1, 85, -1).permute(0, 2, 1))
        boxes = torch.sigmoid(torch.cat(maps, dim=1))
        pixels = torch.ones(85)
        pixels[:4] = 64.0
        return boxes * pixels, maps


assert os.environ["YOLOv5_AUTOINSTALL"] == "false"


def yolov5s(pretrained=True, autoshape=True, device=None):
    assert not pretrained and not autoshape and device == "cpu"
    return Network()
"""


def start_cold(spec, frames):
    assert (spec.stages, spec.threads) == (1, 1)
    row = (40_000_000, 41_000_000, 70_000_000, 71_000_000)
    return ColdStart(0, 1, 2, 3, ("preprocess", "inference", "decode"), (row, row), (0, 1))


def test_two_networks(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(paper000, "start_cold", start_cold)
    monkeypatch.setattr(paper000, "CHUNK", 3)
    options = (
        "--models segmenter detector --runs 7 --layer-runs 4 --frames synthetic:3 --threads 1"
    )
    _, written = benches.run("paper000", options, "--figures", str(tmp_path))
    assert list(written["models"]) == ["segmenter", "detector"]
    assert written["passed"] is None
    for entry in written["models"].values():
        assert entry["time_ms"]["count"] == 7
        assert list(entry["stages"]) == ["preprocess", "inference", "decode"]
        assert entry["cold_ms"]["first_frame"] == 31.0
        assert entry["spread"] == pytest.approx(entry["time_ms"]["max"] / entry["time_ms"]["best"])
        # Of each three runs two layer by layer: never fewer than were asked for.
        assert {layer["time_ms"]["count"] for layer in entry["layers"]} == {5}
        assert sum(layer["share"] for layer in entry["layers"]) == pytest.approx(1.0)
        assert entry["pwcet"]["support"] == "unproven"
        assert [bound["upper_ms"] for bound in entry["pwcet"]["bounds"]] == [None, None]
        assert "samples_ms" not in entry
        assert entry["device"] in entry["as_paper"]
        for runs in entry["as_paper"].values():
            assert [len(runs[key]) for key in ("profiled_ms", "plain_ms")] == [12, 12]
            assert min(*runs["profiled_ms"], *runs["plain_ms"]) > 0.0
        assert entry["twelve"] is None  # seven runs have no twelve in a row
    for name in ("layers.png", "distributions.png", "first_runs.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    table = benches.show("paper000", written)
    assert "HWM/BCET" in table
    assert "unproven" in table
    assert "as in the paper: 12 runs" in table
    assert ("no column of CUDA" in table) == bool(written["cuda_missing"])
    assert table.endswith("a bound at 1e-03 for each network: not judged")
    assert "paper000: detector: 3 of 7" in capsys.readouterr().err


def test_what_the_worst_of_twelve_says():
    times_ms = np.arange(24.0)
    found = paper000.describe_twelve(times_ms)
    assert found["worst_ms"] == [11.0, 23.0]
    assert found["mean_exceeded_percent"] == 25.0  # worst of 11 to 23: twelve to none beyond
    # Three in a row: one beyond two of them, none beyond the third.
    once = paper000.describe_twelve(np.array([1.0] * 13 + [2.0]))
    assert once["mean_exceeded_percent"] == pytest.approx(100.0 * 2 / 3 / 14)
    times_ms = np.random.default_rng(0).exponential(size=20_000)
    independent = paper000.describe_twelve(times_ms)
    assert independent["mean_exceeded_percent"] == pytest.approx(100.0 / 13, rel=0.03)
    assert paper000.describe_twelve(np.arange(11.0)) is None
    same = paper000.describe_twelve(np.ones(12))
    assert same == {"worst_ms": [1.0, 1.0], "mean_exceeded_percent": 0.0}


@pytest.mark.parametrize(
    ("key", "words"),
    [("mean_exceeded_percent", "on average"), ("exceeded_percent", "in the median")],
)
def test_what_is_beyond_the_worst_of_twelve_is_told_as_it_was_measured(key, words):
    runs = {"profiled_ms": [2.0, 1.0], "plain_ms": [2.0, 1.0]}
    entry = {"as_paper": {"cpu": runs}, "twelve": {key: 7.25}, "device": "cpu", "paper": ""}
    text, table = paper000._report_as_paper({"models": {"a": entry}, "cuda_missing": ""})
    assert text.endswith(f"the worst of 12 in a row, {words}")
    assert dict(zip(table.header, table.rows[0], strict=True))["beyond %"] == "7.2"


def test_runs_of_the_paper_by_hand():
    found = paper000._summarize_runs([240.0, 150.0, 160.0])
    assert found == {"first": 240.0, "best": 150.0, "worst": 240.0, "spread": 1.6}


def test_a_bound_is_never_shown_without_its_verdict():
    bound = {"exceedance": 1e-4, "upper_ms": 12.345, "support": "extrapolated"}
    entry = {"pwcet": {"bounds": [bound, {**bound, "upper_ms": None, "support": "unproven"}]}}
    assert paper000._show_bound(0, entry) == "12.35 extrapolated"
    assert paper000._show_bound(1, entry) == "unproven"


@pytest.mark.parametrize(
    ("count", "off", "bound_ms", "sound"),
    [
        (1000, 0.14, 20.0, True),
        (1000, -0.16, 20.0, False),
        (999, 0.0, 20.0, False),
        (1000, 0.0, None, False),  # unproven
    ],
)
def test_the_bars(count, off, bound_ms, sound):
    bounds = [{"upper_ms": bound_ms}, {"upper_ms": None}]
    pwcet = {"statement": "a sentence in any case", "bounds": bounds}
    entry = {"time_ms": {"count": count}, "pwcet": pwcet, "layers_off": off}
    assert paper000.rejudge({"runs": count, "models": {"a": entry}}) is (
        sound if count >= 1000 else None
    )
    assert paper000._is_sound(entry) is sound


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "yolov5"
    folder.mkdir()
    (folder / "hubconf.py").write_text(HUB)
    return folder


def test_a_checkout_is_exported_and_recognised(checkout, tmp_path):
    path = export_yolov5(checkout, tmp_path, side=64)
    model = load_model(f"onnx:{path}")
    assert (model.head.name, model.head.classes, model.input_size) == ("yolov5", 80, (64, 64))


def test_a_folder_that_is_no_checkout_is_refused(checkout, tmp_path):
    with pytest.raises(ConfigurationError, match="has a file hubconf"):
        export_yolov5(tmp_path, tmp_path)
    (checkout / "hubconf.py").write_text("import no_such_package")
    with pytest.raises(ModelError, match=r"yolov5s cannot be made \(ModuleNotFoundError"):
        export_yolov5(checkout, tmp_path)


def test_what_stands_in_for_yolov5_is_said(checkout, tmp_path):
    from contextlib import ExitStack

    given_args = benches.parse("paper000", "--yolov5", str(tmp_path / "y.onnx"))
    with ExitStack() as stack:
        instead = paper000._find_network("yolov5", benches.parse("paper000"), stack)
        given = paper000._find_network("yolov5", given_args, stack)
    assert (instead.name, instead.note) == (
        "yolox_nano", "in place of YOLOv5, which --yolov5 names"
    )  # fmt: skip
    assert instead.source.endswith("yolox_nano.onnx")
    assert (given.name, given.source) == ("yolov5", f"onnx:{tmp_path / 'y.onnx'}")
