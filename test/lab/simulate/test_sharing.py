# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How a trace tells that tasks shared the cores; damaged values are named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from traced_jobs import METADATA, make_record, write_parquet_trace

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.evaluate.simulated import read_recorded
from jetson_dnn_rt.lab.simulate.recording import read_recording
from jetson_dnn_rt.lab.simulate.sharing import Sharing
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import SHARING


def describe(parameters):
    return replace(METADATA, parameters=parameters)


@pytest.mark.parametrize(
    ("parameters", "sharing"),
    [
        (
            {
                "helpers": {"model": "null:1"},  # a task
                SHARING: {
                    "workers": 2,
                    "helpers": 1,
                    "threads": "auto",
                    "narrow_slowdowns": {"helpers": [1.5, 2]},
                },
            },
            Sharing(2, 1, "auto", {"helpers": (1.5, 2.0)}),
        ),
        ({SHARING: {"narrow_slowdowns": {}}}, Sharing(1, None, None, {})),
        # Of earlier releases.
        ({"detector": {}}, Sharing()),
        ({"perception": {"workers": 3, "helpers": 2, "threads": "4"}}, Sharing(3, 2, "4")),
        (
            {"perception": {"helpers": 2}, "helpers": 1, "narrow_slowdowns": {"a": [1.5]}},
            Sharing(1, 1, None, {"a": (1.5,)}),
        ),
    ],
)
def test_what_a_trace_tells(parameters, sharing):
    assert Sharing.of(describe(parameters)) == sharing


@pytest.mark.parametrize("read", [read_recording, lambda path: read_recorded([open_trace(path)])])
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"perception": 3}, "perception must hold names with values"),
        ({"helpers": "x"}, "helpers must be a whole number: 'x'"),
        ({"helpers": {"model": "null:1"}}, "helpers must be a whole number"),
        ({SHARING: 1}, "shared cores must hold names with values: 1"),
        ({SHARING: {"helpers": "x"}}, "shared cores.helpers must be a whole number"),
        ({SHARING: {"helpers": -1}}, r"shared cores.helpers must be in \[0, "),
        ({SHARING: {"workers": 0}}, r"shared cores.workers must be in \[1, "),
        ({SHARING: {"narrow_slowdowns": [1]}}, "narrow_slowdowns must hold names with values"),
        ({SHARING: {"narrow_slowdowns": {"a": 0}}}, "narrow_slowdowns.a must be a list"),
        *(
            ({SHARING: {"narrow_slowdowns": {"a": [value]}}}, r"narrow_slowdowns.a\[0\] must be ")
            for value in (0, -1.5, float("nan"), float("inf"), "2", None)
        ),
    ],
)
def test_damaged_values_are_named(tmp_path, parameters, words, read):
    path = write_parquet_trace(tmp_path, [make_record(0)], describe(parameters))
    with pytest.raises(ConfigurationError, match=words) as raised:
        read(path)
    assert str(path) in str(raised.value)
