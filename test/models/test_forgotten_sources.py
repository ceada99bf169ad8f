# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A process that traces networks again and again keeps the source texts of living graphs alone."""

from __future__ import annotations

import gc
import linecache

import pytest
import torch

from jetson_dnn_rt.models.graph.tracing import SOURCE_NAME, forget_dead_sources, trace


def make_network():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()


def names_of_texts():
    cached = torch.fx.graph_module._loader.eval_cache
    return {name for name in {*linecache.cache, *cached} if name.startswith(SOURCE_NAME)}


@pytest.fixture
def collected_by_hand():
    """Else some of the graphs are gone sooner."""
    gc.disable()
    yield
    gc.enable()


def test_texts_of_dead_graphs_go_with_the_next_trace(collected_by_hand):
    gc.collect()
    forget_dead_sources()
    before = names_of_texts()
    for _ in range(5):
        trace(make_network())
    assert len(names_of_texts() - before) >= 5  # torch.fx keeps them: else nothing is to be done
    gc.collect()
    graph = trace(make_network())
    ours = graph.forward.__code__.co_filename
    # A trace compiles more than once: its older texts are let go with the trace after it.
    gc.collect()
    forget_dead_sources()
    assert names_of_texts() - before == {ours}


def test_a_living_graph_keeps_its_text():
    graph = trace(make_network())
    forget_dead_sources()
    name = graph.forward.__code__.co_filename
    assert name in names_of_texts()
    assert "def forward" in "".join(linecache.getlines(name))
