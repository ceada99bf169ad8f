# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Many DNNs at once: the figures by hand, the modes on a small network, and the whole command."""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import benches
import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.harness.numerics import find_error
from benchmarks.harness.tables import UNDECIDED
from benchmarks.multi_dnn import bench as figures
from benchmarks.multi_dnn import networks
from benchmarks.multi_dnn.modes import (
    LEAST_RUNS,
    JobQueue,
    Load,
    MissedError,
    Processes,
    ProcessFailedError,
    QueuedNetwork,
    Variant,
    choose_variant,
    list_splits,
    list_variants,
    measure_scheduled,
    time_variants,
)
from benchmarks.multi_dnn.networks import (
    NetworkSpec,
    choose_cuts,
    choose_ranks,
    decompose,
    find_recovered,
    find_reference,
    load_module,
    prepare,
    run_outputs,
)
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.variants.decomposition import describe_layer
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.macs import LayerCost

MS = 1_000_000


@pytest.fixture(scope="module")
def small():
    return prepare(NetworkSpec.of("builtin:detector", 32), 3, "cpu")


# -- figures -----------------------------------------------------------------------------------


def times(*milliseconds):
    return np.array([round(value * MS) for value in milliseconds], np.int64)


def test_figures_by_hand():
    rounds = {
        "a": [[times(10, 10, 10), times(20, 20)], [times(20), times(40)]],  # 15 and 30
        "e": [[times(3), times(3)], [times(3), times(3)]],
    }
    modes = figures.describe_modes(rounds, ["x", "x"], {}, {"b": "no"})
    assert modes["a"]["time_per_dnn_ms"] == 22.5
    assert modes["a"]["inferences_per_s"] == 112.5  # 150 and 75
    assert modes["a"]["by_model"] == {"x": {"p50_ms": 20.0, "p99_ms": 40.0, "count": 7}}
    # In pairs of one round: 1 - 3 / 15 and 1 - 3 / 30.
    assert modes["e"]["less_than_a"] == 85.0
    assert (modes["b"], modes["c"]) == ({"note": "no"}, {"note": "not run"})
    # A mix compares each network.
    rounds = {"a": [[times(10), times(30)]], "c": [[times(5), times(33)]]}
    mix = figures.describe_modes(rounds, ["x", "y"], {}, {})["c"]["by_model"]
    assert [mix[name]["less_than_a"] for name in "xy"] == [50.0, -10.0]


def row(name, less_than_a, **changes):
    modes = {
        "f": {"less_than_e": -4.9, "outputs_agree": True},
        "g": {"less_than_a": less_than_a, "outputs_agree": True},
    }
    return {"row": name, "instances": 8, "models": ["vgg16"], "modes": modes, **changes}


@pytest.mark.parametrize(
    ("found", "device", "passed"),
    [
        (row("vgg16", 80.0), "cuda", True),
        (row("vgg16", 79.9), "cuda", False),
        (row("resnet152", 65.0), "cuda", True),
        (row("mix", 79.0), "cuda", False),
        (row("vgg16", 1.0, instances=4), "cuda", None),
        (row("mobilenet_v2", 1.0, models=["mobilenet_v2"]), "cuda", None),
        (row("mix", 1.0, models=["vgg16", "mobilenet_v2"]), "cuda", None),
        (row("vgg16", 0.0), "cpu", True),
        (row("vgg16", 90.0, modes={"f": {"less_than_e": -5.1}, "g": {}}), "cpu", False),
        (row("vgg16", 90.0, modes={"f": {"note": "no memory"}, "g": {}}), "cpu", None),
        (row("vgg16", 90.0, modes={"c": {"outputs_agree": False}, "g": {}}), "cuda", False),
        (row("vgg16", 90.0, modes={"g": {"note": "no memory"}}), "cuda", None),
    ],
)
def test_bars(found, device, passed):
    assert figures.judge_row(found, device) is passed
    assert figures.judge({"device": device, "rows": [found]}) is passed
    both = {"device": "cuda", "rows": [found, row("resnet152", 10.0)]}
    assert figures.judge(both) is False


@pytest.mark.parametrize(
    ("ours", "device", "passed"),
    [
        ([10.4] * 10, "cpu", True),
        ([10.6] * 10, "cpu", False),
        ([10.6] * 2 + [10.0] * 8, "cpu", UNDECIDED),
        ([10.0] * 9, "cpu", UNDECIDED),
        ([4.0] * 10, "cuda", True),
        ([4.1] * 10, "cuda", False),
        ([3.0] * 8 + [5.0] * 2, "cuda", UNDECIDED),
    ],
)
def test_bars_are_those_of_the_rounds(ours, device, passed):
    mode, base, other = ("f", "e", 10.0) if device == "cpu" else ("g", "a", 20.0)
    rounds = {mode: [[times(one)] for one in ours], base: [[times(other)] for _ in ours]}
    modes = figures.describe_modes(rounds, ["vgg16"], {}, {})
    found = row("vgg16", 0.0, modes=modes)
    assert figures.judge_row(found, device) == passed


def test_each_idea_has_a_figure_of_its_own():
    rounds = {"a": [[times(20)]], "e": [[times(10)]], "f": [[times(8)]], "g": [[times(6)]]}
    modes = figures.describe_modes(rounds, ["x"], {}, {})
    assert figures.describe_steps(modes) == [
        "e against a, back end: 50.0 % less",
        "f against e, one process: 20.0 % less",
        "g against f, smaller networks: 25.0 % less",
    ]
    assert figures.describe_steps({"a": {}, "f": {"note": "no memory"}}) == []


def test_alone_and_among_others_by_hand():
    modes = {"a": {"time_per_dnn_ms": 50.0}, "f": {"time_per_dnn_ms": 8.0}, "g": {"note": "no"}}
    rows = [
        {"row": "vgg16", "instances": 6, "networks": {"vgg16": {"solo_ms": 10.0}}, "modes": modes},
        {"row": "mix", "instances": 2, "networks": {"vgg16": {"solo_ms": 10.0}}, "modes": modes},
        {"row": "resnet152", "instances": 6, "networks": {"resnet152": {}}, "modes": modes},
    ]
    _, table = figures.report_alone(rows)
    assert table.header[:7] == [
        "network", "instances", "alone ms", "a ms", "x alone", "f ms", "x alone",
    ]  # fmt: skip
    (cells,) = table.rows  # a mix has no time alone, nor has an old result
    assert cells[:7] == ["vgg16", 6, "10.00", "50.00", "5.00", "8.00", "0.80"]
    assert cells[7:] == ["52.5", "334.8", "6.38", "90.38"]  # the paper's
    assert figures.report_alone(rows[1:]) == []


# -- networks ----------------------------------------------------------------------------------


def test_jobs_have_equally_many_layers():
    places = [f"layer{index}" for index in range(1, 9)]  # nine layers
    assert choose_cuts(places, 3) == ("layer3", "layer6")
    assert choose_cuts(places, 1) == ()
    assert choose_cuts(places, 99) == tuple(places)


def test_one_ratio_saves_what_is_asked():
    conv = nn.Conv2d(64, 64, 3)
    layer = describe_layer(conv, "tucker")
    cost = LayerCost(64 * 64 * 9 * 100, 0, ((1, 64, 12, 12),), 100, 100)
    ranks, saved = choose_ranks({"conv": layer}, {"conv": cost}, 0.5 * cost.macs)
    inner, outer = ranks["conv"]
    assert inner == outer
    assert inner % 8 == 0
    assert saved == cost.macs - 100 * (64 * inner + 9 * inner * outer + outer * 64)
    assert saved >= 0.5 * cost.macs
    larger = inner + 8
    assert 100 * (128 * larger + 9 * larger * larger) > 0.5 * cost.macs


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("pair", [(8, 8), (8, 16), (16, 8)])
def test_a_convolution_of_low_rank_is_kept(groups, pair):
    torch.manual_seed(0)
    conv = nn.Conv2d(16 * groups, 16 * groups, 3, padding=1, groups=groups)
    with torch.no_grad():
        weight = torch.einsum(
            "gor,grst,gsi->goit",
            torch.randn(groups, 16, pair[1]), torch.randn(groups, pair[1], pair[0], 9),
            torch.randn(groups, pair[0], 16),
        )  # fmt: skip
        conv.weight.copy_(weight.reshape(conv.weight.shape))
    built = decompose(conv, describe_layer(conv, "tucker"), pair, "cpu")
    image = torch.randn(1, 16 * groups, 6, 6)
    with torch.inference_mode():
        expected, given = conv(image), built(image)
    assert float((expected - given).abs().max() / expected.abs().max()) < 1e-4
    assert len(built) == 1 + (pair[0] < 16) + (pair[1] < 16)


def test_random_weights_keep_their_norm():
    torch.manual_seed(0)
    conv = nn.Conv2d(32, 32, 3, bias=False)
    built = decompose(conv, describe_layer(conv, "tucker"), (8, 8), "cpu", keep_norm=True)
    inner, core, outer = (layer.weight.detach().flatten(1).double() for layer in built)
    core = core.reshape(8, 8, 9)
    weight = torch.einsum("op,prt,ri->oit", outer, core, inner)
    assert float(weight.norm() / conv.weight.detach().norm()) == pytest.approx(1.0, abs=1e-5)


def test_sizes_that_networks_need():
    pytest.importorskip("torchvision", exc_type=ImportError)
    assert NetworkSpec.of("inception_v3", 32).size == (75, 75)
    assert NetworkSpec.of("vgg16", 224).input_shape == (1, 3, 224, 224)
    assert NetworkSpec.of("builtin:detector", 32).size == (240, 320)
    for name in ("vgg1", "builtin:nothing"):
        with pytest.raises(ConfigurationError, match=r"there is no|has no classifier"):
            NetworkSpec.of(name, 32)


def test_other_processes_compute_the_same(tmp_path):
    pytest.importorskip("torchvision", exc_type=ImportError)
    prepared = prepare(NetworkSpec.of("squeezenet1_1", 48), 3, "cpu")
    image = prepared.spec.make_image()
    assert prepared.reduction >= prepared.asked
    for form, ranks in (("original", {}), ("tucker", prepared.ranks)):
        module = load_module(prepared.spec, ranks, prepared.save(form, tmp_path))
        with torch.inference_mode():
            given = [value.numpy() for value in run_outputs(module, torch.from_numpy(image))]
        assert find_error(given, find_reference(prepared.forms[form], image)) < 1e-5


# -- modes -------------------------------------------------------------------------------------


def test_the_queue_runs_all_jobs_of_all_networks(small):
    image = small.spec.make_image()
    networks = [
        QueuedNetwork(small.forms[form], image, "cpu") for form in ("original", "tucker", "tucker")
    ]
    assert [len(network.jobs) for network in networks] == [3, 3, 3]
    jobs = JobQueue(networks, "cpu", 2, 1)
    try:
        assert [len(taken) for taken in jobs.measure(0.0)] == [LEAST_RUNS] * 3
        for network, form in zip(networks, ("original", "tucker", "tucker"), strict=True):
            assert find_error(network.outputs, find_reference(small.forms[form], image)) < 1e-5
    finally:
        jobs.close()


def test_a_job_that_fails_is_told(small):
    network = QueuedNetwork(small.forms["original"], np.zeros((1, 3, 48), np.float32), "cpu")
    with pytest.raises(RuntimeError):
        JobQueue([network], "cpu", 1, 1)


def make_network(name, run):
    variant = Variant("original", "null", "fp32", 1.0)
    return SimpleNamespace(name=name, run=run, variant=variant, device="cpu")


def test_each_task_has_one_frame_in_flight():
    seen = {"x": [], "y": []}

    def run(name):
        return lambda work: seen[name].append(work.frame.sequence)

    networks = [make_network(name, run(name)) for name in seen]
    taken = measure_scheduled(networks, 2, 0.0)
    assert [len(values) for values in taken] == [LEAST_RUNS] * 2
    assert seen == {name: list(range(LEAST_RUNS)) for name in seen}
    assert all((values > 0).all() for values in taken)


def test_a_frame_that_fails_is_no_figure():
    def fail(work):
        raise ValueError("broken")

    with pytest.raises(MissedError, match="failed ValueError: broken"):
        measure_scheduled([make_network("x", fail)], 1, 0.0)


def test_splits_use_all_cores():
    assert list_splits("cpu", 8, 4) == [(1, 4), (2, 2), (4, 1)]
    assert list_splits("cpu", 2, 16) == [(1, 16), (2, 8)]
    assert list_splits("cuda", 8, 16) == [(8, 1), (4, 1), (2, 1), (1, 1)]


def test_the_fastest_variant_is_chosen(small):
    variants = [v for form in ("original", "tucker") for v in list_variants(form, ["torch"])]
    assert {"full@torch-fp32", "tucker@torch-fp32"} <= {variant.name for variant in variants}
    assert set(time_variants(small, variants[:1], 1, 0.0)) == {variants[0].name}
    times_ms = {variant.name: 9.0 for variant in variants} | {"tucker@torch-fp32": 8.0}
    chosen = choose_variant(variants, times_ms)
    assert (chosen.name, chosen.alone_ms) == ("tucker@torch-fp32", 8.0)
    assert choose_variant(variants, dict.fromkeys(times_ms, "cannot run")) is None


def test_a_decomposition_that_loses_accuracy_is_not_ours(small):
    assert "tucker" in small.forms
    assert small.reduced_form == ""
    recovered = replace(small, forms={**small.forms, "recovered": small.forms["tucker"]})
    assert recovered.reduced_form == "recovered"
    random = replace(small, spec=NetworkSpec("vgg16", (32, 32)))
    assert (random.reduced_form, random.measure_accuracy(1)) == ("tucker", {})


@pytest.mark.parametrize(("steps", "found"), [(-1, None), (0, None), (5, "recovered")])
def test_only_a_recovered_network_comes_from_the_library(monkeypatch, tmp_path, steps, found):
    monkeypatch.setattr(networks, "stored_steps", lambda *args: steps)
    monkeypatch.setattr(networks, "load_reduced", lambda *args: "recovered")
    library = Library(tmp_path)
    assert find_recovered(NetworkSpec.of("builtin:detector", 32), library) == found
    assert find_recovered(NetworkSpec("vgg16", (32, 32)), library) is None


def test_a_process_runs_a_variant_of_a_back_end(small, tmp_path):
    (variant,) = [v for v in list_variants("original", ["torch"]) if v.precision == "fp32"]
    with Processes(1, "cpu", 1) as processes:
        load = Load(small.spec, "e", {}, small.save("original", tmp_path), variant)
        processes.load([load])
        (outputs,) = processes.ask("outputs", "e")
        reference = find_reference(small.forms["original"], small.spec.make_image())
        assert find_error(outputs, reference) < 1e-5


def test_what_a_process_says_reaches_the_parent(small, tmp_path):
    with Processes(1, "cpu", 1) as processes:
        missing = Load(small.spec, "a", {}, tmp_path / "missing.pt")
        with pytest.raises(ProcessFailedError, match=r"missing\.pt"):
            processes.load([missing])
        # It goes on.
        processes.load([Load(small.spec, "a", {}, small.save("original", tmp_path))])
        (taken,) = processes.ask("measure", "a", 0.0)
        assert len(taken) == LEAST_RUNS
        (outputs,) = processes.ask("outputs", "a")
        reference = find_reference(small.forms["original"], small.spec.make_image())
        assert find_error(outputs, reference) < 1e-5
        processes._processes[0].kill()
        with pytest.raises(ProcessFailedError, match="a process ended"):
            processes.ask("drop")


# -- the command -------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_whole_command(tmp_path, monkeypatch, capsys):
    # On CPUs without bf16 in hardware one run of those takes seconds.
    monkeypatch.setattr(figures, "list_variants", lambda *args: list_variants(*args)[:1])
    output = tmp_path / "multi_dnn.json"
    options = (
        "--models builtin:detector --instances 2 --jobs 2 --device cpu --backends torch "
        "--scenes 1 --minutes 0.01 --window 0.01 --library"
    )
    _, some = benches.run("multi_dnn", f"--modes f a {options}", str(tmp_path))
    (modes,) = (row["modes"] for row in some["rows"])
    assert [mode for mode in modes if "note" not in modes[mode]] == ["a", "f"]
    assert modes["e"]["note"] == "not run"
    assert some["passed"] is None  # there is nothing to compare f with
    _, result = benches.run("multi_dnn", options, str(tmp_path), "--output", str(output))
    (found,) = result["rows"]
    assert found["models"] == ["builtin:detector"] * 2
    assert found["rounds"] == 2
    assert list(found["modes"]) == list("abcdefg")
    assert "no reduced network" in found["modes"].pop("g")["note"]
    assert set(found["networks"]["builtin:detector"]["accuracy"]) == {"original", "tucker"}
    assert found["networks"]["builtin:detector"]["solo_ms"] > 0.0
    assert found["modes"]["b"]["error_to_full"] > 0.1 > found["modes"]["f"]["error_to_full"]
    for mode, said in found["modes"].items():
        assert said["outputs_agree"], (mode, said)
        assert said["by_model"]["builtin:detector"]["count"] >= 2 * 2 * LEAST_RUNS
        assert ("less_than_a" in said) == (mode != "a")
    assert "comparison is about GPUs" in capsys.readouterr().err
    (written,) = json.loads(output.read_text())["rows"]
    assert written["modes"]["f"] == found["modes"]["f"]
    text = benches.show("multi_dnn", result)
    assert "a original, processes" in text
    assert "x alone" in text
    assert "f against e, one process: " in text


def test_it_needs_torch_and_no_extras():
    hidden = ["cv2", "pyarrow", "scipy", "rclpy", "onnx"]
    code = (
        "import sys; sys.modules.update(dict.fromkeys(sys.argv[1:]));"
        "import benchmarks.multi_dnn.bench"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *hidden], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
