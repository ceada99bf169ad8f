# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Smallest share of a network's multiply-accumulates that a method can keep.

It follows from shapes alone, so a budget that is out of reach is refused before frames are read
and layers analysed.
"""

from __future__ import annotations

import math

from torch import fx

from jetson_dnn_rt.backends.registry import list_backends
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.compress.factorisation import count_macs, list_ranks
from jetson_dnn_rt.variants.decomposition import find_layers
from jetson_dnn_rt.variants.measuring.macs import Costs
from jetson_dnn_rt.variants.spec import METHODS, DecompositionSpec

_WORTHWHILE = 0.1  # of all multiply-accumulates: a saving that is worth naming


def require_share(graph: fx.GraphModule, costs: Costs, spec: DecompositionSpec) -> None:
    """Raise a `ConfigurationError` if the budget of a ``macs`` rule is out of reach.

    The error says which layers the method cannot decompose, and what could help instead. `costs`
    are those of the graph.
    """
    if spec.rule != "macs":
        return
    least = {method: _count_least(graph, costs, method) for method in METHODS}
    if least[spec.method] <= int(spec.value * costs.macs):
        return
    shares = {method: macs / costs.macs for method, macs in least.items()}
    raise ConfigurationError(
        f"{spec}: cannot keep {spec.digits} of the multiply-accumulates: the smallest share "
        f"possible is {_round_up(shares[spec.method], 4)}"
        f"{_list_fixed(graph, costs, spec.method)}. Instead: "
        f"{'; '.join(_list_alternatives(spec, shares))}"
    )


def _count_least(graph: fx.GraphModule, costs: Costs, method: str) -> int:
    """Multiply-accumulates with the cheapest ranks of every layer."""
    saved = 0
    for name, layer in find_layers(graph, method).items():
        if not layer.reason:
            cost = costs.layers[name]
            inner, outer = list_ranks(layer, method)
            least = count_macs(layer, cost, inner[:, None], outer).min(initial=cost.macs)
            saved += cost.macs - int(least)
    return costs.macs - saved


def _list_fixed(graph: fx.GraphModule, costs: Costs, method: str) -> str:
    """Describe the layers that the method leaves as they are, by kind."""
    fixed: dict[str, list[int]] = {}
    for name, layer in find_layers(graph, method).items():
        if layer.reason:
            fixed.setdefault(layer.reason, []).append(costs.layers[name].macs)
    kinds = [
        f"{len(macs)} {reason} layer{'s' if len(macs) > 1 else ''} ({sum(macs) / costs.macs:.1%})"
        for reason, macs in sorted(fixed.items(), key=lambda item: -sum(item[1]))
    ]
    if not kinds:
        return ""
    return f" ({method} cannot decompose {' and '.join(kinds)} of the multiply-accumulates)"


def _list_alternatives(spec: DecompositionSpec, shares: dict[str, float]) -> list[str]:
    own = shares[spec.method]
    found = []
    for method, share in shares.items():
        if own - share >= _WORTHWHILE:
            found.append(f"--method {method}, which goes down to {_round_up(share, 4)}")
    if own <= 1.0 - _WORTHWHILE:
        found.append(f"--ranks macs:{_round_up(own, 2)}")
    int8 = [i.name for i in list_backends() if i.available and "int8" in i.precisions]
    if int8:
        found.append(f"an INT8 variant, full@{int8[0]}-int8 (jetson-dnn-rt build)")
    return [*found, "a smaller network"]


def _round_up(share: float, digits: int) -> str:
    """Write a share so that it is possible as written."""
    return f"{math.ceil(share * 10**digits) / 10**digits:.{digits}f}"
