# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How bytes, texts and trees of values are spoilt: the same for the same random numbers."""

from __future__ import annotations

import copy
import random
import struct
from typing import Any

TRAP = "fuzz_trap"
"""A module that can be imported, and that nothing imports unless a file can ask for it."""

SECRET = "../bait/secret"
"""A file beside the folder of an input, which no reader has a reason to open."""

INTEGERS = (
    0, 1, -1, 2, 3, 4, 7, 8, 16, 17, 64, 100, 127, 128, 255, 256, 1000, 32_767, 32_768, 65_535,
    65_536, 10**6, 2**24, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1,
    2**63, 2**64 - 1, -(2**31), -(2**63),
)  # fmt: skip

TEXTS = (
    "", "\0", "a", "x" * 300, "x" * 100_000, "a\nb", "\x1b[2J", "ä€𝄞", "\ud800", "../x", SECRET,
    "/etc/passwd", TRAP, f"{TRAP}:Thing", f"{TRAP}.Thing", f"__import__('{TRAP}')",
    f"x = __import__('{TRAP}')", "builtins.eval", "os.system", "file:///etc/passwd",
    "http://127.0.0.1:9/x", "%s%n{0}", "nan", "1e999", "-0", "9" * 5000, "0x10",
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-02-30T00:00:00+00:00",
)  # fmt: skip


def nest(depth: int) -> list[Any]:
    """Lists in each other."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    None, True, False, *INTEGERS, 2**64, 10**400, 10**4200, 0.5, -0.0, 1e308, -1e308, 5e-324,
    float("nan"), float("inf"), float("-inf"), *TEXTS, [], {}, [None], {"": None}, [[1 << 70]],
    nest(60), nest(900), [0] * 5000,
)  # fmt: skip
"""What a program that is not ours, or a disk, may put in the place of a value."""

_BYTES = (
    b"\0" * 8, b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\xc3\x28", b"\xed\xa0\x80", b"\xf5\x80",
    b"\xff\xfe", *(text.encode("utf-8", "surrogatepass") for text in TEXTS if len(text) < 400),
)  # fmt: skip


def spoil_bytes(data: bytes, rng: random.Random, other: bytes = b"") -> bytes:
    """Change one to four places: bits, numbers, pieces, the end; put pieces of `other` in."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(len(changed) + 1)
        end = min(len(changed), place + rng.choice((1, 2, 4, 8, 40, 400, 4000)))
        how = rng.randrange(12)
        if how == 0 and end > place:
            changed[place] ^= 1 << rng.randrange(8)
        elif how in (1, 2):
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice(INTEGERS) % (1 << 8 * width)
            order = rng.choice(("little", "big"))
            changed[place : place + width] = number.to_bytes(width, order)  # type: ignore[arg-type]
        elif how == 3 and end > place:
            # A length or a place that is off by a few.
            changed[place] = (changed[place] + rng.choice((-8, -2, -1, 1, 2, 8))) % 256
        elif how == 4:
            changed[place:end] = bytes(end - place)
        elif how == 5:
            del changed[place:end]
        elif how == 6:
            changed[place:place] = changed[place:end] * rng.choice((1, 2, 300))
        elif how == 7:
            del changed[place:]
        elif how == 8:
            start = rng.randrange(len(changed) + 1)
            piece = changed[start : start + end - place]
            changed[place : place + len(piece)] = piece
        elif how == 9:
            cut = rng.randrange(len(other) + 1)
            changed[place:] = other[cut : cut + max(0, 2 * len(data) - place)]
        elif how == 10:
            token = rng.choice(_BYTES)
            changed[place : place + rng.choice((0, len(token)))] = token
        elif len(changed) > 8:
            # Numbers are aligned in many formats.
            place = rng.randrange(len(changed) // 8) * 8
            changed[place : place + 8] = struct.pack("<Q", rng.choice(INTEGERS) % (1 << 64))
    return bytes(changed)


def spoil_tree(value: Any, rng: random.Random, other: Any = None) -> Any:
    """A copy of JSON, or of what YAML holds, with one to three places changed."""
    root: dict[str, Any] = {"": copy.deepcopy(value)}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        parent, key = _choose_place(root, rng)
        _change(parent, key, rng, (root[""], other))
    return root[""]


def _choose_place(root: dict[str, Any], rng: random.Random) -> tuple[Any, Any]:
    """A container and a key of it: near the root, or any one."""
    if rng.random() < 0.5:
        parent, key = root, ""
        while rng.random() < 0.75 and isinstance(parent[key], dict | list) and parent[key]:
            parent = parent[key]
            key = rng.choice(_keys(parent))
        return parent, key
    waiting, chosen, seen = [root], (root, ""), 0
    while waiting:
        parent = waiting.pop()
        for key in _keys(parent):
            seen += 1
            if rng.randrange(seen) == 0:
                chosen = parent, key
            if isinstance(parent[key], dict | list):
                waiting.append(parent[key])
    return chosen


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value)))


def _change(parent: Any, key: Any, rng: random.Random, sources: tuple[Any, Any]) -> None:
    old, how = parent[key], rng.randrange(10)
    if how == 0 and key != "":
        del parent[key]
    elif how == 1 and isinstance(parent, dict) and key != "":
        name = rng.choice((f"{key}\ud800", f"{key}x", *TEXTS[:8], *map(str, parent)))
        parent[name] = parent.pop(key)
    elif how == 2 and isinstance(parent, list):
        many = 4 if isinstance(old, dict | list) else 1000
        parent[key:key] = [copy.deepcopy(old)] * rng.choice((1, 1, 2, many))
    elif how in (3, 4):
        holder: dict[str, Any] = {"": rng.choice(sources)}
        source, place = _choose_place(holder, rng)
        parent[key] = copy.deepcopy(source[place])
    elif how in (5, 6) and isinstance(old, int | float) and not isinstance(old, bool):
        near = old if abs(old) < 1e300 else 1
        parent[key] = rng.choice((near + 1, near - 1, -near, *INTEGERS, float(near), str(near)))
    elif how in (5, 6) and isinstance(old, str):
        parent[key] = spoil_text(old, rng)
    else:
        parent[key] = rng.choice(VALUES)


def spoil_text(text: str, rng: random.Random, words: tuple[str, ...] = TEXTS) -> str:
    """Cut, double, swap or replace a piece of a text."""
    place = rng.randrange(len(text) + 1)
    end = min(len(text), place + rng.choice((0, 1, 3, 10, 100)))
    middle = rng.choice(("", text[place:end] * rng.choice((2, 50)), *rng.sample(words, 3)))
    return text[:place] + middle + rng.choice((text[end:], text[end:], ""))
