# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""YAML that costs more than it looks."""

from __future__ import annotations


def make_bomb(levels: int) -> str:
    """Anchors ``a0`` to ``a{levels}``, each ten times the one before: 10^levels texts."""
    lines = ["a0: &a0 'lolololololololo'"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels + 1)]
    return "\n".join(lines) + "\n"


BOMBS = {
    "a billion texts": make_bomb(8) + "names: [*a8]\n",
    "merged mappings": "a0: &a0 {x: 1}\n"
    + "".join(f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 9)),
    "a list in itself": "names: &a [*a]\n",
    "10,000 lists in each other": "[" * 10_000,
    "lists in each other by aliases": "a0: &a0 []\n"
    + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 2000)),
    "a number to base 60": "names: [1" + ":1" * 30_000 + "]",
    "the 31st of February": "names: [2001-02-31]",
    "an empty number": "names: [!!int '']",
    "no truth": "names: [!!bool x]",
}
