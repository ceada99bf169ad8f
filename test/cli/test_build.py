# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`build` and `library` as scripts see them: tables, JSON on the last line, exit codes."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial

import cv2
import numpy as np
import pytest
from networks import make_onnx

from jetson_dnn_rt.cli import build as build_command
from jetson_dnn_rt.cli import main
from jetson_dnn_rt.cli.progress import PhaseProgress, format_duration
from jetson_dnn_rt.runtime.building import builder as building
from jetson_dnn_rt.variants.library import library as library_module
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.measuring.agreement import Agreement
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames
from jetson_dnn_rt.variants.measuring.store import AGREEMENT_FACT
from jetson_dnn_rt.variants.running.engines import TuningOptions
from jetson_dnn_rt.variants.spec import VariantSpec

PARAMS = """
perception:
  ros__parameters: {tasks: [detector, segmenter]}
/**:
  ros__parameters: {threads: 1, build_frames: "images:%s"}
/**/detector:
  ros__parameters: {model: "null:0.1", variants: [full@null]}
/**/segmenter:
  ros__parameters: {model: "null:0.1,segmentation", kind: segmentation}
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    return tmp_path / "cache" / "jetson_dnn_rt"


@pytest.fixture
def file(tmp_path):
    """Parameters of a detector and a segmenter that take 0.1 ms."""
    images = tmp_path / "images"
    images.mkdir()
    for index in range(4):
        cv2.imwrite(str(images / f"{index}.png"), np.full((16, 24, 3), 60 * index, np.uint8))
    file = tmp_path / "params.yaml"
    file.write_text(PARAMS % images)
    return file


@pytest.fixture
def run(cache, capsys):
    """Runs a command; exit code, JSON of the last line, and stderr."""

    def run(*arguments):
        code = main.main([*arguments, "--json"])
        captured = capsys.readouterr()
        lines = captured.out.splitlines()
        return code, json.loads(lines[-1]) if lines else None, captured.err

    return run


@pytest.fixture
def build(run, file):
    return partial(run, "build", "--params", str(file), "--runs", "3")


# -- build -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        ([], {"a": 2, "b": 2, "other": 1, "alone": 1}),
        (["--batch", "5"], {"a": 5, "b": 5, "other": 5, "alone": 1}),
        (["--task", "a"], {"a": 1}),
    ],
)
def test_batches_are_built_for_as_many_tasks_as_are_alike(
    tmp_path, file, build, monkeypatch, arguments, sizes
):
    file.write_text(
        "perception: {ros__parameters: {tasks: [a, b, other, alone]}}\n"
        f"/**: {{ros__parameters: {{model: 'null:0.1', build_frames: 'images:{tmp_path}'}}}}\n"
        "/**/other: {ros__parameters: {model: 'null:0.2'}}\n"
        "/**/alone: {ros__parameters: {batch: 'off'}}\n"
    )
    found = {}

    def note(builder, spec, progress):
        found[builder.name] = builder.plan.batch
        report = (builder.name, str(spec), "present", "", False, None, 0.0, "4 of 9 in int8")
        return building.BuildReport(*report)

    monkeypatch.setattr(building.TaskBuilder, "build", note)
    code, _, text = build(*arguments)
    assert code == 0
    assert found == sizes
    assert "a full@null: 4 of 9 in int8" in text


def test_build_builds_then_finds(tmp_path, cache, build):
    code, result, errors = build()
    assert code == 0
    assert result["libraries"] == [str(cache)]
    assert result["references"] == []
    assert [(v["task"], v["variant"], v["state"]) for v in result["variants"]] == [
        ("detector", "full@null", "built"),
        ("segmenter", "full@null", "built"),
    ]
    for variant in result["variants"]:
        assert variant["time_ms"]["count"] == 3
        assert variant["time_ms"]["p50"] >= 0.1
        assert list(variant["stages"]) == ["preprocess", "inference", "decode"]
        assert variant["agreement"]["value"] is None  # a null network finds nothing
        assert variant["machine"]["cpu"]
        assert variant["threads"] == 1
        assert variant["frames"] == f"images:{tmp_path / 'images'}"
    assert "detector full@null (1 of 2): " in errors
    assert "segmenter full@null: built in 0:" in errors
    assert "built 2 in 0:" in errors
    code, again, errors = build()
    assert code == 0
    assert [v["state"] for v in again["variants"]] == ["present", "present"]
    assert [v["date"] for v in again["variants"]] == [v["date"] for v in result["variants"]]
    assert "built 0 in" in errors


@pytest.mark.parametrize(
    ("threads", "workers", "expected"), [("0", 2, 4), ("3", 2, 3), ("auto", 2, 8)]
)
def test_threads_are_those_of_the_process(threads, workers, expected, file, build, monkeypatch):
    # What a trial at the start of the process takes is not known yet: all cores.
    monkeypatch.setattr("jetson_dnn_rt.backends.threads.count_cores", lambda: 8)
    text = file.read_text().replace("threads: 1", f"threads: {threads}, workers: {workers}")
    file.write_text(text)
    code, result, _ = build("--task", "detector")
    assert code == 0
    assert [variant["threads"] for variant in result["variants"]] == [expected]


def test_build_prints_a_table_for_people(file, cache, capsys):
    assert main.main(["build", "--params", str(file), "--runs", "3", "--task", "segmenter"]) == 0
    out = capsys.readouterr().out.splitlines()
    header = "task variant state p50 ms p99 ms cancel ms memory MB agreement MACs M parameters k"
    assert out[0].split() == header.split()
    assert out[2].split()[:3] == ["segmenter", "full@null", "built"]
    assert "unknown: one class in" in out[2]
    assert str(cache) in out[-1]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("[full@null]", "[full@null, full@torch-fp32]", "null"),
        (
            '"null:0.1", variants: [full@null]',
            '"onnx:/no.onnx", variants: [full@torch-fp32]',
            "no.onnx",
        ),
    ],
)
def test_what_cannot_be_built_is_exit_code_1_and_the_rest_is_built(file, build, old, new, text):
    file.write_text(file.read_text().replace(old, new))
    code, result, errors = build()
    assert code == 1
    found = {(v["task"], v["variant"]): v for v in result["variants"]}
    failed = found.pop(("detector", "full@torch-fp32"))
    assert failed["state"] == "failed"
    assert text in failed["reason"]
    assert failed["reason"] in errors
    assert ("segmenter", "full@null") in found
    assert {variant["state"] for variant in found.values()} == {"built"}


def fail_to_write(folder, name, data):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_build_that_cannot_be_kept_is_no_success(file, capsys, monkeypatch, cache):
    """EDGES, campaign 5: on a full disk it ended with 0, and the library was empty."""
    monkeypatch.setattr(library_module, "write_file", fail_to_write)
    assert main.main(["build", "--params", str(file), "--runs", "3"]) == 2
    captured = capsys.readouterr()
    assert "segmenter" in captured.out  # the report comes all the same
    last = captured.err.splitlines()[-1]
    assert f"library {cache} cannot be written: No space left on device" in last


@pytest.mark.parametrize("others", [[], ["full@torch-fp32"]])
def test_a_budget_out_of_reach_is_refused_before_a_frame_is_read(
    tmp_path, file, build, monkeypatch, caplog, others
):
    pytest.importorskip("torch")
    impossible = ["tucker-0.01@torch-fp32", "tucker-0.01@onnxruntime-fp32"]
    network = make_onnx(tmp_path / "network.onnx", classes=64)
    file.write_text(
        "perception: {ros__parameters: {tasks: [front]}}\n"
        f"/**/front: {{ros__parameters: {{model: 'onnx:{network}', kind: segmentation, "
        f"build_frames: 'images:{tmp_path / 'images'}', threads: 1, "
        f"variants: [{', '.join([*impossible, *others])}]}}}}\n"
    )
    monkeypatch.setattr(building, "choose_default", lambda m: VariantSpec("full", "torch"))
    known = []

    def read(*args):
        known.append(sorted(r.getMessage() for r in caplog.records if "smallest" in r.message))
        return open_frames(*args)

    monkeypatch.setattr(building, "open_frames", read)
    code, result, _ = build()
    assert code == 1
    states = {v["variant"]: v["state"] for v in result["variants"]}
    assert states == {**dict.fromkeys(impossible, "failed"), **dict.fromkeys(others, "built")}
    assert all("smallest share possible" in v["reason"] for v in result["variants"][:2])
    assert result["references"] == []  # nothing is left to compare with them
    assert [len(messages) for messages in known] == [2] * len(others)


def test_a_refused_variant_is_no_failure(run, build, capsys, monkeypatch):
    make = building.make_measurement

    def refuse(*args, **options):
        return make(*args, **options).refuse("of no use: 3 ms")

    monkeypatch.setattr(building, "make_measurement", refuse)
    for fresh in (True, False):
        code, result, errors = build("--task", "detector")
        assert code == 0
        (variant,) = result["variants"]
        assert (variant["state"], variant["reason"]) == ("refused", "of no use: 3 ms")
        assert variant["built"] is fresh
        assert "detector full@null: refused: of no use: 3 ms" in errors
    code, result, _ = run("library", "list")
    (entry,) = result["entries"]
    assert entry["refused"] == "of no use: 3 ms"
    assert entry["measured"]["time_ms"]["p50"] > 0
    assert main.main(["library", "list"]) == 0
    assert "of no use: 3 ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "arguments", "text"),
    [
        (("variants: [full@null]", "variants: [fast]"), [], "detector: variant 'fast'"),
        (("threads: 1", "threads: many"), [], "threads must be a whole number"),
        (("tasks: [detector, segmenter]", "workers: 0"), [], "workers must be in [1, 64]"),
        (("threads: 1", "engine_cache: none"), [], "nowhere to keep"),
        (("threads: 1", "engine_cache: /proc/none"), [], "cannot be written"),
        (("", ""), ["--task", "rear"], "no task rear"),
        (("", ""), ["--engine-cache", "/proc/none"], "cannot be written"),
        (("null:0.1", "nonsense:0.1"), [], "nonsense"),
    ],
)
def test_bad_configuration_is_exit_code_2(change, arguments, text, file, build):
    file.write_text(file.read_text().replace(*change) if change[0] else file.read_text())
    code, result, errors = build(*arguments)
    assert (code, result) == (2, None)
    assert text in errors.splitlines()[-1]


def test_build_needs_a_file(file, build):
    file.unlink()
    assert build()[0] == 2
    with pytest.raises(SystemExit) as ended:
        main.main(["build"])
    assert ended.value.code == 2


def test_build_needs_no_ros(tmp_path, file):
    code = (
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('rclpy', 'rcl_interfaces', 'std_msgs'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "from jetson_dnn_rt.cli.main import main\n"
        "sys.exit(main())\n"
    )
    command = [sys.executable, "-c", code, "build", "--params", str(file), "--runs", "2", "--json"]
    done = subprocess.run(
        [*command, "--engine-cache", str(tmp_path / "here")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["libraries"] == [str(tmp_path / "here")]


def test_a_terminated_build_ends_at_once_and_leaves_no_half_entry(tmp_path, file):
    file.write_text(file.read_text().replace("null:0.1", "null:60000"))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "jetson_dnn_rt.cli.main", "build", "--params", str(file)),
            *("--engine-cache", str(tmp_path / "here"), "--json"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "warming up" in line:
            break
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert out == ""
    assert Library(tmp_path / "here").entries() == []


def test_options_of_tvm_stand_for_the_parameters(cache, tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text(
        "detector: {ros__parameters: {model: 'null:1', tvm_trials: 7, tvm_minutes: 2.0}}\n"
    )

    def plan(*options):
        arguments = ["build", "--params", str(file), "--task", "detector", *options]
        (job,) = build_command._plan(main.build_parser("build").parse_args(arguments))
        assert job.builder is not None
        return job.builder.plan.tuning

    assert plan() == TuningOptions(7, 2.0)
    given = ["--tvm-trials", "9", "--tvm-minutes", "0.5", "--tvm-rpc", "orin:9090"]
    assert plan(*given) == TuningOptions(9, 0.5, "orin:9090")
    # Who compiles only asks no board.
    assert plan(*given, "--no-tuning") == TuningOptions(9, 0.5, tunes=False)


# -- library -----------------------------------------------------------------------------------


def make_key(**changes):
    values = {"model_hash": "a" * 64, "graph_hash": "b" * 64, "decomposition": "full"}
    return EntryKey(**{**values, "kind": "weights", **changes})


def test_library_lists_whatever_is_there(cache, run, capsys):
    library = Library()
    library.store(make_key(), {"weights.bin": b"1" * 2_000_000}, {}, model="builtin:detector")
    damaged = library.store(make_key(options="x"), {"weights.bin": b"1"}, {}).path
    assert damaged is not None
    (damaged / "weights.bin").unlink()
    library.store(make_key(kind="measurement", options="y"), {}, {"no": "measurement"})
    code, result, _ = run("library", "list")
    assert code == 0
    assert result["library"] == str(cache)
    assert result["size_mb"] == pytest.approx(library.size_bytes() / 1e6)
    problems = {entry["key"]["options"]: entry["problem"] for entry in result["entries"]}
    assert problems[""] == ""
    assert problems["x"] == "weights.bin is missing"
    assert "measurement.no is none of variant, total" in problems["y"]
    models = {entry["key"]["options"]: entry["model"] for entry in result["entries"]}
    assert models[""] == "builtin:detector"
    assert main.main(["library", "list"]) == 0
    out = capsys.readouterr().out
    assert "weights.bin is missing" in out
    assert out.count("unusable") == 2
    assert f"3 entries, 2.0 MB in {cache}" in out


def test_the_artefacts_of_one_network_are_one_row_and_what_was_compared_is_shown(cache, capsys):
    library = Library()
    for number in range(3):
        key = make_key(kind="artefact", options=f"stage {number}")
        library.store(key, {"stage.onnx": b"1" * 1_000_000}, {}, model="onnx:net.onnx")
    compared = Agreement(0.947, "mAP@0.5", 20, 90, "full@openvino-fp32")
    library.store(make_key(), {"weights.bin": b"1"}, {AGREEMENT_FACT: asdict(compared)})
    assert main.main(["library", "list"]) == 0
    out = capsys.readouterr().out
    (row,) = (line for line in out.splitlines() if " artefact " in line)
    assert "artefact x3  ok" in row
    assert " 3.0" in row
    assert "0.947 mAP@0.5" in out
    assert "4 entries" in out


def test_an_empty_library(cache, run, capsys):
    assert main.main(["library", "list"]) == 0
    assert capsys.readouterr().out == f"{cache} does not exist\n"
    code, result, _ = run("library", "prune")
    assert (code, result["removed"], result["size_mb"]) == (0, [], 0)


def test_prune_removes_what_its_conditions_say(tmp_path, run, capsys):
    library = Library(tmp_path / "lib")
    where = ["--engine-cache", str(library.root)]
    paths = {}
    for name, days in (("old", 90), ("young", 1), ("new", 0)):
        path = library.store(make_key(options=name), {"f": b"x" * 1_000_000}, {}).path
        assert path is not None
        then = datetime.now(timezone.utc).timestamp() - days * 86_400
        os.utime(path / "entry.json", (then, then))
        paths[name] = path
    stale = library.store(make_key(device="NVIDIA Tegra Orin, 8.7"), {}, {}).path
    assert stale is not None
    code, result, _ = run("library", "prune", *where, "--dry-run")
    assert code == 0
    assert [entry["path"] for entry in result["removed"]] == [str(stale)]
    assert "which is not here" in result["removed"][0]["reason"]
    assert stale.exists()
    run("library", "prune", *where)
    assert not stale.exists()
    _, result, _ = run("library", "prune", *where, "--older-than", "30")
    assert [entry["path"] for entry in result["removed"]] == [str(paths["old"])]
    assert main.main(["library", "prune", *where, "--larger-than", "1.5"]) == 0
    out = capsys.readouterr().out
    assert str(paths["young"]) in out
    assert "1 entries, 1.0 MB removed; 1.0 MB stay" in out
    assert [path.exists() for path in paths.values()] == [False, False, True]


@pytest.mark.parametrize(
    "arguments",
    [[], ["remove"], ["prune", "--older-than", "-1"], ["prune", "--larger-than", "many"]],
)
def test_bad_arguments_of_library_are_exit_code_2(arguments):
    with pytest.raises(SystemExit) as ended:
        main.main(["library", *arguments])
    assert ended.value.code == 2


def test_a_library_that_is_a_file_is_exit_code_2(tmp_path, run):
    (tmp_path / "file").write_text("")
    assert run("library", "list", "--engine-cache", str(tmp_path / "file"))[0] == 2


# -- progress ----------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_that_cannot_be_written_ends_no_work():
    """EDGES, campaign 5: the log is on the disk that is full."""
    said = False
    with contextlib.suppress(OSError), open("/dev/full", "w") as stream:  # closing it fails
        progress = PhaseProgress(stream, lambda: 0.0)
        progress.begin("detector a")
        progress("recovery", 1, 2)
        progress.say("detector a: built")
        said = True
    assert said


def test_progress_in_a_file_is_whole_lines_now_and_then():
    stream, now = io.StringIO(), [100.0]
    progress = PhaseProgress(stream, lambda: now[0])
    progress.begin("detector a", 1, 4)
    for step in range(101):
        progress("recovery", step, 100)
        now[0] += 0.25
    progress("timing", 0, 1)
    progress.begin("detector b", 2, 4)
    now[0] += 0.25
    progress("recovery", 1, 10)
    now[0] += 99.75
    progress.begin("detector c", 3, 4)
    progress("recovery", 1, 10)
    now[0] += 5.0
    progress.begin("detector d", 4, 4)
    now[0] += 5.0
    progress("timing", 0, 1)
    assert stream.getvalue().splitlines() == [
        "detector a (1 of 4): recovery 0 of 100, 0 %",
        "detector a (1 of 4): recovery 20 of 100, 20 %, 0:20 left",
        "detector a (1 of 4): recovery 40 of 100, 40 %, 0:15 left",
        "detector a (1 of 4): recovery 60 of 100, 60 %, 0:10 left",
        "detector a (1 of 4): recovery 80 of 100, 80 %, 0:05 left",
        "detector a (1 of 4): recovery 100 of 100, 100 %",
        "detector a (1 of 4): timing",
        # One of four says nothing about the others; two took 25.25 and 100 s.
        "detector b (2 of 4): recovery 1 of 10, 10 %",
        "detector c (3 of 4): recovery 1 of 10, 10 %, "
        "all: 0:51 to 3:20 left, if like those before",
        "detector d (4 of 4): timing, all: 0:00 to 1:35 left, if like those before",
    ]


def test_what_takes_longer_than_those_before_it_counts_into_the_whole():
    stream, now = io.StringIO(), [0.0]
    progress = PhaseProgress(stream, lambda: now[0])
    progress.begin("detector a", 1, 3)
    now[0] = 8.0
    progress.begin("detector b", 2, 3)
    now[0] = 16.0
    progress.begin("detector c", 3, 3)
    progress("tuning", 0, 100)
    now[0] = 76.0
    progress("tuning", 10, 100)
    assert stream.getvalue().splitlines()[-1] == (
        "detector c (3 of 3): tuning 10 of 100, 10 %, 9:00 left, "
        "all: 9:00 left, if like those before"
    )


def test_progress_on_a_terminal_is_one_line():
    stream = Terminal()
    with PhaseProgress(stream, lambda: 0.0) as progress:
        progress.begin("detector a")
        progress("timing", 0, 1)
        progress.say("detector a: built")
    assert stream.getvalue() == ("\r\x1b[Kdetector a: timing\r\x1b[Kdetector a: built\n\r\x1b[K")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (0.2, "0:01"), (59.5, "1:00"), (760, "12:40"), (3723, "1:02:03")],
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text
