# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Files of tables: what is written is read again, and nothing else is."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.coordinator.tables import files as table_files
from jetson_dnn_rt.coordinator.tables.files import TableFile, load_tables, save_tables
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.platforms.boards import tx2_space
from jetson_dnn_rt.platforms.clocks import ClockSpace


def make_file(tasks=2, clocks=3, samples=4):
    rng = np.random.default_rng(7)
    space = tx2_space()
    indices = np.sort(rng.choice(len(space), clocks, replace=False))
    clock_table = ClockTable(space, indices, rng.random(clocks) + 1.0, clocks - 1, 0)
    shape = (2, 3)
    tables = tuple(
        TaskTable(
            f"task {number} é", ("preprocess", "inference", "decode"), ("full@a", "tucker-0.50@a"),
            33_000_000 + number, 33_333_333, rng.integers(1, 10**7, (*shape, samples)),
            1.0 + rng.random((*shape, clocks)), 5.0 * rng.random((*shape, clocks)),
            0.1 * rng.random(shape),
        )
        for number in range(tasks)
    )  # fmt: skip
    notes = {"machine": {"cpu": "x"}, "agreement": {"a": 0.98}}
    return TableFile(clock_table, tables, (1.0, 1.31), True, notes)


def check_same(a, b):
    assert (a.interference, a.power_measured) == (b.interference, b.power_measured)
    assert a.notes == b.notes
    for mine, yours in zip((a.clocks, *a.tables), (b.clocks, *b.tables), strict=True):
        for field in fields(mine):
            before, after = getattr(mine, field.name), getattr(yours, field.name)
            np.testing.assert_array_equal(before, after)
            assert np.asarray(before).dtype == np.asarray(after).dtype


def test_what_is_written_is_read_again_to_the_last_bit(tmp_path):
    path = tmp_path / "tables.json"
    fixed = ClockTable(ClockSpace([]), np.array([0]), np.array([0.0]), 0, 0)
    for file in (make_file(), TableFile(fixed, make_file(1, 1, 1).tables)):
        save_tables(path, file)
        check_same(file, load_tables(path))
    assert os.listdir(tmp_path) == ["tables.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_table_of_a_task_is_found_by_name():
    file = make_file()
    assert file.table("task 1 é") is file.tables[1]
    with pytest.raises(KeyError, match="task 0"):
        file.table("detector")


# -- what cannot be read -----------------------------------------------------------------------


def change(path, *keys, to):
    """Write a good file in which one value is another one."""
    save_tables(path, make_file())
    value = json.loads(path.read_text())
    place = value
    for key in keys[:-1]:
        place = place[key]
    if to is ...:
        del place[keys[-1]]
    else:
        place[keys[-1]] = to
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("keys", "to", "text"),
    [
        (("format",), "yaml", "'format' must be 'jetson_dnn_rt-tables'"),
        (("version",), 2, "has version 2, this release reads version 1"),
        (("clocks",), ..., "clocks is missing"),
        (("extra",), 1, "extra is none of format"),
        (("notes",), [], "notes must hold names with values"),
        (("tasks",), [], "tasks must be at least one, each of them once"),
        (("tasks", 1, "task"), "task 0 é", "tasks must be at least one, each of them once"),
        (("tasks", 1, "stages"), ["a", "a", "b"], "tasks[1] stages of task 'task 1 é' must have"),
        (("tasks", 1, "stages", 2), 7, "tasks[1].stages[2] must be a text"),
        (("tasks", 0, "deadline_ns"), 0, "tasks[0] deadline_ns and period_ns of task"),
        (("tasks", 0, "deadline_ns"), 1.5, "tasks[0].deadline_ns must be a whole number"),
        (("tasks", 0, "deadline_ns"), True, "tasks[0].deadline_ns must be a whole number"),
        (("tasks", 0, "times_ns", 1), [[1], [1]], "tasks[0].times_ns must be lists that are"),
        (("tasks", 0, "times_ns", 1, 2, 0), 0, "tasks[0] times_ns of task 'task 0 é' must be > 0"),
        (("tasks", 0, "times_ns", 1, 2, 0), 1 << 63, "tasks[0].times_ns must hold whole numbers"),
        (("tasks", 0, "times_ns", 1, 2, 0), 1.0, "tasks[0].times_ns must hold whole numbers"),
        (("tasks", 0, "slowdown", 0, 0), [1.0], "tasks[0].slowdown must be lists that are equal"),
        (("tasks", 0, "slowdown", 0, 0, 0), -1.0, "tasks[0] slowdown must be >= 1e-9"),
        (("tasks", 0, "power_w", 0, 0, 0), "1", "tasks[0].power_w must hold numbers only"),
        (("tasks", 0, "power_w", 0, 0, 0), 10**400, "tasks[0].power_w must hold numbers"),
        (("tasks", 0, "loss"), 0.1, "tasks[0] loss of task 'task 0 é' must be (2, 3): ()"),
        (("interference",), [], "interference must hold numbers >= 1"),
        (("interference", 1), 0.5, "interference must hold numbers >= 1"),
        (("power_measured",), 1, "power_measured must be true or false"),
        (("clocks", "indices", 0), 11_760, "clocks indices must be different numbers below"),
        (("clocks", "idle_w"), [1.0], "clocks idle_w must have one value for each of 3"),
        (("clocks", "max_q"), 3, "clocks max_q must be in [0, 3)"),
        (("clocks", "domains", 0, "options", 0), [1, 2], "options[0] must have 3 values"),
        (("clocks", "domains", 0, "options", 0), [9**15, 1, 0], "options of domain 'little' are"),
        (("clocks", "domains", 0, "options", 0), [1, 1, 6], "mask 0x6 does not have 1 cores"),
        (("clocks", "domains", 1, "name"), "little", "must have different names"),
        (("clocks", "domains", 0, "delay_ns"), -1, "domains[0].delay_ns must be in [0, "),
    ],
)
def test_an_error_names_the_file_the_place_and_the_fix(keys, to, text, tmp_path):
    path = tmp_path / "tables.json"
    change(path, *keys, to=to)
    with pytest.raises(ConfigurationError) as caught:
        load_tables(path)
    message = str(caught.value)
    assert message.startswith(f"tables {path}")
    assert text in message
    assert "jetson-dnn-rt profile" in message


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b'{"format": NaN}', "NaN is no number"),
        (b'{"a": 1, "a": 2}', "a key is there twice"),
        (b"[]", "is no file of tables"),
    ],
)
def test_what_is_no_json_is_said(data, text, tmp_path):
    path = tmp_path / "tables.json"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=text):
        load_tables(path)


def test_a_file_or_folder_that_is_not_there_has_a_fix(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be written: No such file"):
        save_tables(tmp_path / "none" / "tables.json", make_file())
    with pytest.raises(ConfigurationError, match=r"No such file.*jetson-dnn-rt profile"):
        load_tables(tmp_path / "none.json")


def test_sizes_are_checked_before_memory_is_taken(tmp_path, monkeypatch):
    path = tmp_path / "tables.json"
    change(path, "clocks", "domains", 0, "options", to=[[f, 1, 0] for f in range(10**4)])
    with pytest.raises(ConfigurationError, match="clocks domains have more than 1048576"):
        load_tables(path)
    save_tables(path, make_file())
    monkeypatch.setattr(table_files, "MAX_BYTES", path.stat().st_size - 1)
    with pytest.raises(ConfigurationError, match="is larger than"):
        load_tables(path)
    with pytest.raises(ConfigurationError, match="fewer --runs"):
        save_tables(tmp_path / "other", make_file())
    assert not (tmp_path / "other").exists()


JSON_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False),
    st.text(max_size=3), st.lists(st.integers(-2, 2), max_size=3),
    st.dictionaries(st.sampled_from(["name", "task", "x"]), st.integers(0, 2), max_size=2),
)  # fmt: skip
GOOD = json.dumps(table_files._to_json(make_file(1, 2, 2)))


@pytest.mark.parametrize("indices", [0, [], [[0], [1]]])
def test_indices_that_are_no_list_are_refused(tmp_path, indices):
    """The search below finds it once in thousands of files."""
    value = json.loads(GOOD)
    value["clocks"]["indices"] = indices
    path = tmp_path / "tables.json"
    path.write_text(json.dumps(value))
    with pytest.raises(ConfigurationError, match="indices must be"):
        load_tables(path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_in_a_file_is_read_or_refused(data, tmp_path):
    value = json.loads(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = value
        while True:
            if not isinstance(place, (dict, list)) or not place:
                break
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(place[key], (dict, list)) or data.draw(st.integers(0, 3)) == 0:
                if data.draw(st.booleans()):
                    del place[key]
                else:
                    place[key] = copy.deepcopy(data.draw(JSON_VALUES))
                break
            place = place[key]
    path = tmp_path / "tables.json"
    path.write_text(json.dumps(value))
    try:
        read = load_tables(path)
    except ConfigurationError as error:
        assert str(path) in str(error)  # noqa: PT017  both ends are good
    else:
        save_tables(path, read)
        check_same(read, load_tables(path))


# -- writing -----------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "tables.json"
    save_tables(path, make_file())
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    for name in ("replace", "fsync"):
        with monkeypatch.context() as patched:
            patched.setattr(table_files.os, name, fail)
            with pytest.raises(ConfigurationError, match="No space left"):
                save_tables(path, make_file(1))
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["tables.json"]


@pytest.mark.parametrize("bad", [float("nan"), {1, 2}])
def test_what_could_not_be_read_again_is_not_written(bad, tmp_path):
    with pytest.raises(ConfigurationError):
        save_tables(tmp_path / "tables.json", replace(make_file(), notes={"a": bad}))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"interference": ()}, "interference must hold"),
        ({"tables": ()}, "tasks must be at least one"),
        ({"tables": (make_file().tables[0],) * 2}, "each of them once"),
        ({"tables": (make_file(1, 2).tables[0],)}, "must be of 3 clocks"),
    ],
)
def test_tables_that_do_not_fit_together_are_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        replace(make_file(), **changes)
