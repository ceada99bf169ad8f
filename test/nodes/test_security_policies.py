# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
import security_policies


@pytest.mark.usefixtures("empty_domain")
@pytest.mark.parametrize("name", security_policies.ENCLAVES)
def test_a_policy_allows_the_endpoints_of_its_nodes_and_nothing_else(name):
    policy = security_policies.render(security_policies.collect(name))
    file = security_policies.policy_file(name)
    assert policy == file.read_text(encoding="utf-8"), (
        "a node has other topics or services than its SROS2 policy allows; fix: "
        "python tools/security_policies.py --write"
    )


@pytest.mark.parametrize(
    ("topic", "shown"),
    [
        ("/front/detector/debug/variants/full_torch_fp32/p99_ms", "~/debug/*"),
        ("/front/detector/enable", "~/enable"),
        ("/front/image_raw", "image_raw"),
        ("/rear/image_raw", "/rear/image_raw"),
        ("/diagnostics", "/diagnostics"),
        ("/frontal/image_raw", "/frontal/image_raw"),
    ],
)
def test_names_are_relative_to_the_node_where_they_move_with_it(topic, shown):
    assert security_policies.shorten(topic, "detector", "/front") == shown
