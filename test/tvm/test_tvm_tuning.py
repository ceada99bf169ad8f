# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tuning: its budget, first guesses, its database, and what is damaged or hostile in one."""

from __future__ import annotations

import base64
import json
import math
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from malice import annotate_records, make_llvm_constructor
from networks import make_model
from tvm_networks import make_small, tune_model

from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.tvm import compile as tvm_compile
from jetson_dnn_rt.tvm import database as tvm_database
from jetson_dnn_rt.tvm.database import HEADER, RECORDS, WORKLOADS, DatabaseError, TuningDatabase
from jetson_dnn_rt.tvm.guesses import VectorUnit, find_vector_unit, list_blocks, make_candidates
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.measuring import Measurer, find_remote_target
from jetson_dnn_rt.tvm.records import check_scheduled, list_kernels
from jetson_dnn_rt.tvm.target import TvmTarget, find_local_target, parse_target
from jetson_dnn_rt.tvm.tuning import _extract, _make_space, count_tuned

tvm = pytest.importorskip("tvm", reason="the extra tvm is not installed")
pytest.importorskip("xgboost", reason="the extra tvm is not installed")


@pytest.fixture(scope="module")
def model():
    return make_small()


@pytest.fixture(scope="module")
def target():
    return find_local_target(1)


@pytest.fixture(scope="module")
def tuned(model, target):
    """A database, how far it came, and the progress that was told meanwhile."""
    database, told = TuningDatabase(target), []
    state = tune_model(model, database, progress=lambda *step: told.append(step))
    return database, state, told


def test_every_kernel_gets_a_schedule(tuned):
    database, state, told = tuned
    assert state.complete
    assert state.kernels == state.tuned > 3
    assert state.kernels <= state.trials == database.trials <= 2 * state.kernels
    assert state.seconds == database.seconds > 0
    counts = [done for _, done, _ in told]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert told[-1][1] == told[-1][2] > 0
    assert told[0][0].startswith("tuning ")


def test_nothing_is_tuned_beforehand(model, target):
    state = count_tuned(lower(model, "fp32", target), TuningDatabase(target))
    assert (state.tuned, state.trials, state.seconds) == (0, 0, 0.0)
    assert not state.complete


def test_more_trials_are_added_to_those_that_were_made(model, target, tuned):
    database = TuningDatabase.from_files(tuned[0].to_files(), target)
    state = tune_model(model, database, trials=3)
    assert tuned[1].trials < state.trials <= 3 * state.kernels


def test_stops_when_it_is_told_to(model, target):
    database = TuningDatabase(target)
    state = tune_model(model, database, stop=lambda: database.trials > 0)
    assert 0 < state.tuned < state.kernels
    assert not state.complete


def test_a_budget_of_time_ends_it(model, target):
    assert tune_model(model, TuningDatabase(target), minutes=1e-9).trials == 0


def test_kernels_of_another_target_are_refused(tuned, target):
    files = tuned[0].to_files()
    board = parse_target("aarch64:cortex-a78ae", 1)
    with pytest.raises(DatabaseError, match=re.escape(target.text)) as caught:
        TuningDatabase.from_files(files, board)
    assert board.text in str(caught.value)
    assert "tune on a board of the same kind" in str(caught.value)


def change_version(files):
    header = json.loads(files[HEADER])
    files[HEADER] = json.dumps({**header, "tvm": "0.9.0"}).encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_version, "of TVM 0.9.0"),
        (lambda files: files.pop(RECORDS), "lacks records.json"),
        (lambda files: files.update({HEADER: b"[]"}), "damaged"),
        (lambda files: files.update({HEADER: b"{"}), "damaged"),
        (lambda files: files.update({RECORDS: b"nonsense\n"}), "damaged"),
    ],
)
def test_damage_is_refused(tuned, target, change, message):
    files = tuned[0].to_files()
    change(files)  # type: ignore[operator]
    with pytest.raises(DatabaseError, match=message):
        TuningDatabase.from_files(files, target)


def build(files, model, target, folder):
    """From a database to kernels that are loaded, as `TvmVariant` does it."""
    database = TuningDatabase.from_files(files, target)
    scheduled = tvm_compile.schedule(lower(model, "fp32", target), target, database)
    executable = tvm_compile.compile_module(scheduled, target)
    tvm_compile.export_library(executable, folder / "kernels.so")
    tvm_compile.load_library(folder / "kernels.so")


@pytest.mark.parametrize(
    "key", ["pragma_import_llvm", "pragma_import_c", "pragma_debug_skip_region", "x" * 300]
)
def test_records_that_bring_code_along_are_refused(tuned, model, target, tmp_path, key):
    """EDGES 2: code in an annotation of a tuning record is never linked, loaded or run."""
    marker = tmp_path / "marker"
    files = tuned[0].to_files()
    code = make_llvm_constructor(marker)
    files[RECORDS] = annotate_records(files[RECORDS], key, code)
    with pytest.raises(
        DatabaseError, match=rf"record 0: instruction 1 \('Annotate'\).*{key[:40]}"
    ):
        build(files, model, target, tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize("key", ["pragma_unroll_explicit", "meta_schedule.auto_tensorize"])
def test_code_under_a_harmless_key_is_refused(tuned, target, tmp_path, key):
    """EDGES 2: values of annotations are numbers and words."""
    files = tuned[0].to_files()
    code = make_llvm_constructor(tmp_path / "marker")
    files[RECORDS] = annotate_records(files[RECORDS], key, code)
    with pytest.raises(DatabaseError, match=r"record 0: instruction 1 .* has"):
        TuningDatabase.from_files(files, target)


def test_code_that_a_schedule_brings_along_is_found_before_it_is_compiled(
    tuned, model, target, tmp_path
):
    """EDGES 2: scheduled kernels are searched, whatever way a record took into the database."""
    marker = tmp_path / "marker"
    files = tuned[0].to_files()
    code = make_llvm_constructor(marker)
    files[RECORDS] = annotate_records(files[RECORDS], "pragma_import_llvm", code)
    database = TuningDatabase(target, {name: files[name] for name in (WORKLOADS, RECORDS)})
    with pytest.raises(DatabaseError, match=r"for the kernel .* adds the annotation 'pragma_imp"):
        tvm_compile.schedule(lower(model, "fp32", target), target, database)
    assert not marker.exists()


def change_record(records, change):
    """Change the first record: ``[kernel, [[instructions, decisions], times, target, ...]]``."""
    first, *others = records.splitlines()
    record = json.loads(first)
    change(record)
    return b"\n".join([json.dumps(record).encode(), *others, b""])


def add_instruction(*instruction):
    return lambda record: record[1][0][0].append(list(instruction))


def change_decision(kind, change):
    """Change the first decision of an instruction of this kind."""

    def apply(record):
        instructions, decisions = record[1][0]
        decision = next(one for one in decisions if instructions[one[0]][0] == kind)
        decision[1] = change(decision[1])

    return apply


CALL = {"nodes": [{"type": "ir.Op", "data": "tirx.call_extern"}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (add_instruction("UnsafeSetDType", ["b0"], [0, "int8"], []), "UnsafeSetDType"),
        (add_instruction("UnsafeHideBufferAccess", ["b0"], [0, []], []), "UnsafeHide"),
        (add_instruction("NoSuchKind", [], [], []), "NoSuchKind"),
        (add_instruction("Split", ["l5", 2, 2], [1, 1], ["l1", "l2"]), "switches a check off"),
        (
            add_instruction("TransformLayout", ["b0", json.dumps(CALL)], [0, 0, None, False], []),
            "object of type 'ir.Op'",
        ),
        (add_instruction("ComputeInline", ["{}"], [], []), r"has '\{\}'"),
        (add_instruction("GetSBlock", [], ["a b;", "main"], ["b0"]), "has 'a b;'"),
        (add_instruction("GetSBlock", [], [{}, "main"], ["b0"]), r"has \{\}"),
        (add_instruction("Reorder", [[[[[[[[[[["l5"]]]]]]]]]]], [], []), "has"),
        (lambda record: record[1].__setitem__(1, [float("nan")]), "its times"),
        (lambda record: record[1][2].update(kind="c"), "its target"),
        (lambda record: record[1][2].update(mattr=["+x"]), "its target"),
        (lambda record: record[1][0][1].append([0, "__import__"]), "a decision"),
        (
            lambda record: record[1][0][1].append([10**4, 1]),
            "for instruction 10000, which samples",
        ),
        (lambda record: record[1][0][1].append(record[1][0][1][0]), "a decision is for"),
        (
            lambda record: record[1][0][1].pop(0),
            r"a decision of instruction \d+ \(Sample\w+\) is N",
        ),
        (
            change_decision("SamplePerfectTile", lambda value: value[1:]),
            "a decision of instruction",
        ),
        (change_decision("SamplePerfectTile", lambda value: [0, *value[1:]]), "a decision of"),
        (change_decision("SampleCategorical", lambda value: 4), "a decision of instruction"),
        (lambda record: record.__setitem__(0, -1), "its kernel"),
        (lambda record: record.clear(), "not enough values"),
    ],
)
def test_records_say_nothing_but_schedules(tuned, target, change, message):
    """EDGES 2: instructions, keys, values, targets and index maps of records are allow-listed."""
    files = tuned[0].to_files()
    files[RECORDS] = change_record(files[RECORDS], change)
    with pytest.raises(DatabaseError, match=f"record 0: .*{message}"):
        TuningDatabase.from_files(files, target)


def pack(graph):
    data = json.dumps(graph).encode()
    return base64.b64encode(len(data).to_bytes(8, "little") + data).decode()


@pytest.mark.parametrize("kind", ["ffi.Module", "ffi.Function", "ir.EnvFunc", "target.Target"])
def test_kernels_of_a_database_are_kernels(tuned, target, kind):
    """EDGES 2: of the objects that TVM can read, kernels in files hold only parts of kernels."""
    files = tuned[0].to_files()
    first, *others = files[WORKLOADS].splitlines()
    number, text = json.loads(first)
    graph = json.loads(base64.b64decode(text)[8:])
    graph["nodes"].append({"type": kind, "data": "runtime.SystemLib"})
    files[WORKLOADS] = b"\n".join([json.dumps([number, pack(graph)]).encode(), *others, b""])
    with pytest.raises(DatabaseError, match=f"kernel 0: it holds an object of type '{kind}'"):
        TuningDatabase.from_files(files, target)


def test_a_kernel_at_which_tvm_crashes_ends_a_child_alone(tuned, target):
    """Campaign of fuzz: a node that is part of itself, and the process had ended."""
    files = tuned[0].to_files()
    first, *others = files[WORKLOADS].splitlines()
    number, text = json.loads(first)
    graph = json.loads(base64.b64decode(text)[8:])
    place, node = next(
        (place, node) for place, node in enumerate(graph["nodes"]) if node["type"] == "prim.Mul"
    )
    node["data"]["a"] = place
    files[WORKLOADS] = b"\n".join([json.dumps([number, pack(graph)]).encode(), *others, b""])
    with pytest.raises(DatabaseError, match="is damaged: TVM cannot read it in a process without"):
        TuningDatabase.from_files(files, target)


def test_only_what_others_wrote_is_read_by_a_child_and_once(tuned, target, monkeypatch):
    """Reading applies each record: what this process has written need not be read twice."""
    files, children = tuned[0].to_files(), []
    run = tvm_database.run_restricted

    def count(*arguments):
        children.append(arguments)
        return run(*arguments)

    monkeypatch.setattr(tvm_database, "run_restricted", count)
    TuningDatabase.from_files(files, target)
    assert not children
    monkeypatch.setattr(tvm_database, "_readable", set())  # as in another process
    for _ in range(2):
        assert TuningDatabase.from_files(files, target).trials == tuned[0].trials
    assert len(children) == 1


def test_what_tuning_writes_is_read_and_written_alike(tuned, model, target):
    """EDGES 2: records of this package's own tuning pass, and are the same afterwards."""
    database, state, _ = tuned
    again = TuningDatabase.from_files(database.to_files(), target)
    assert count_tuned(lower(model, "fp32", target), again) == replace(
        state, seconds=again.seconds
    )
    whole = TuningDatabase.from_files(again.to_files(), target)
    assert whole.to_files() == again.to_files()


def test_schedules_for_cuda_pass(model):
    """EDGES 2: MetaSchedule's own space for CUDA is allow-listed, too."""
    from tvm.s_tir import meta_schedule

    # Before tensor cores: reading the intrinsics of those takes a minute.
    board = parse_target("cuda:sm_72", 1)
    module, database = lower(model, "fp16", board), TuningDatabase(board)
    names = "s_tir.meta_schedule.TuneContext", "s_tir.meta_schedule.TuneContextInitialize"
    make, initialize = map(tvm.get_global_func, names)
    for number, task in enumerate(_extract(module, board)):
        kernel = task.dispatched[0]
        strategy = meta_schedule.search_strategy.ReplayTrace()
        context = make(
            kernel, board.to_tvm(), _make_space(board), strategy, "kernel", 1, number, None
        )
        initialize(context)
        context.pre_tuning(4, 2, context.generate_design_space(), None, None)
        for candidate in context.generate_measure_candidates() or []:
            check_scheduled(kernel, candidate.sch.mod)
            database.add(kernel, candidate, 1e-3)
    assert database.trials > 3
    again = TuningDatabase.from_files(database.to_files(), board)
    assert count_tuned(module, again).tuned > 2
    tvm_compile.schedule(module, board, again)


def test_kernels_stand_without_transpositions(model, target):
    names = sorted(list_kernels(lower(model, "fp32", target)))
    assert sum("conv2d" in name for name in names) == 3
    assert [name for name in names if "transpose" in name] == ["transpose1"], "the picture's own"
    assert any(re.search("conv2d.*minimum", name) for name in names), "a ReLU6 is fused"


def test_hard_swish_is_part_of_its_convolution(target):
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Hardswish())
    model = make_model(torch.nn.Sequential(network, torch.nn.Conv2d(4, 4, 1)), (8, 8))
    names = sorted(list_kernels(lower(model, "fp32", target)))
    assert len(names) == 4, names
    assert sum("conv2d" in name for name in names) == 2
    assert sum(name.startswith("transpose") for name in names) == 2, "in and out"


@pytest.fixture(scope="module")
def server():
    """A real RPC server of TVM, in a process of its own on this machine."""
    program = (
        "from tvm.rpc.server import Server\n"
        "server = Server('127.0.0.1', port=19090, port_end=19190, silent=True)\n"
        "print(server.port, flush=True)\n"
        "input()\n"
        "server.terminate()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield f"127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.stdin.write("\n")
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


def test_a_board_only_measures(model, target, server):
    board = find_remote_target(server, 1)
    assert board == TvmTarget("llvm", target.cpu, target.triple)
    database = TuningDatabase(board)
    state = tune_model(model, database, trials=1, rpc=server)
    assert state.complete
    assert state.trials == database.trials >= state.kernels


@pytest.mark.parametrize("address", ["nowhere", "host:", "host:0", "host:70000", ":1"])
def test_refuses_what_is_no_address(address):
    with pytest.raises(ConfigurationError, match="tvm_rpc must be HOST:PORT"):
        find_remote_target(address, 1)


def test_says_what_to_start_on_a_board_that_does_not_answer():
    with pytest.raises(BackendUnavailableError, match=r"tvm\.exec\.rpc_server"):
        find_remote_target("127.0.0.1:9", 1)


AVX512, AVX2 = VectorUnit(16, 32), VectorUnit(8, 16)


def test_a_block_fills_the_registers_of_avx512():
    # 64 channels are four registers; of 7 places 4 * 7 + 4 + 1 = 33 would be needed, of 6 29.
    assert list_blocks(1, 6, 64, AVX512)[0] == (1, 6, 64)
    assert (1, 7, 64) not in list_blocks(1, 7, 64, AVX512)
    # One register for each of 14 * 2 places, and as many channels as a register has.
    assert list_blocks(14, 14, 16, AVX512)[0] == (2, 14, 16)


def test_channels_that_fill_no_register_lose():
    first = list_blocks(8, 10, 24, AVX2)[0]
    assert first[2] in (8, 24)


@given(
    rows=st.integers(1, 120),
    columns=st.integers(1, 120),
    channels=st.integers(1, 1280),
    unit=st.sampled_from([AVX512, AVX2, VectorUnit(4, 32)]),
)
def test_blocks_fit(rows, columns, channels, unit):
    blocks = list_blocks(rows, columns, channels, unit)
    assert blocks, "one result at a time always fits"
    assert len(set(blocks)) == len(blocks)
    for high, long, wide in blocks:
        assert rows % high == columns % long == channels % wide == 0
        vectors = math.ceil(wide / unit.lanes)
        assert high * long * vectors + vectors + 1 <= unit.registers


def test_the_cpu_says_what_it_has():
    pytest.importorskip("tvm", reason="the extra tvm is not installed")
    assert find_vector_unit(parse_target("x86-64:znver4", 1)) == AVX512
    assert find_vector_unit(parse_target("x86-64:haswell", 1)) == AVX2
    assert find_vector_unit(parse_target("aarch64:cortex-a78ae", 1)) == VectorUnit(4, 32)


def test_convolutions_get_candidates_that_compile():
    pytest.importorskip("xgboost", reason="the extra tvm is not installed")
    from tvm.s_tir import meta_schedule

    from jetson_dnn_rt.tvm import tuning as tvm_tuning

    target = find_local_target(1)
    if target.kind != "llvm":
        pytest.skip("guesses are for CPUs")
    module = lower(make_small(), "fp32", target)
    measurer, tiled = Measurer(target), 0
    for number, task in enumerate(tvm_tuning._extract(module, target)):
        kernel = task.dispatched[0]
        strategy = meta_schedule.search_strategy.EvolutionarySearch(population_size=4)
        context = tvm_tuning._make_context(kernel, target, strategy, "kernel", 1 + number)
        candidates = make_candidates(context, kernel, find_vector_unit(target), 2)
        assert len(candidates) <= 2
        if "conv2d" in task.task_name:
            assert candidates, task.task_name
            tiled += 1
        times = measurer.measure(candidates, math.inf)
        assert measurer.failures == []
        assert all(0 < seconds < math.inf for seconds in times)
    measurer.close()
    assert tiled == 3
