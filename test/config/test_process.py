# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

import pytest

from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", {}),
        (" ", {}),
        ("cuda=2", {"cuda": 2}),
        (" cuda = 2 , dla0=1,", {"cuda": 2, "dla0": 1}),
    ],
)
def test_what_is_understood(text, limits):
    assert ProcessConfig(max_inflight=text).device_limits == limits


@pytest.mark.parametrize(
    "text", ["cuda", "cuda=", "=2", "cuda=0", "cuda=-1", "cuda=1.5", "a=1,a=2"]
)
def test_what_is_not(text):
    with pytest.raises(ConfigurationError, match=r"max_inflight .*cuda=2"):
        _ = ProcessConfig(max_inflight=text).device_limits
