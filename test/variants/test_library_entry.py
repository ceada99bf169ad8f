# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Keys and headers of the library's entries: what comes back, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import string
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from library_entries import FACTS, make_key

from jetson_dnn_rt.safety.records import read_record
from jetson_dnn_rt.variants.library.entry import (
    KINDS,
    DamagedEntryError,
    FileFacts,
    Header,
    OtherSchemaError,
)
from jetson_dnn_rt.variants.library.library import EntryKey

hashes = st.text("0123456789abcdef", min_size=64, max_size=64)
words = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
texts = st.text(string.printable.strip() + " éΩ", max_size=40)
keys = st.builds(
    EntryKey,
    model_hash=hashes,
    graph_hash=hashes,
    decomposition=words,
    kind=st.sampled_from(KINDS),
    backend=st.just("") | words,
    backend_version=texts,
    device=texts,
    precision=st.just("") | words,
    shapes=st.lists(st.lists(st.integers(0, 4096), max_size=4).map(tuple), max_size=3).map(tuple),
    options=texts,
)


@given(keys)
def test_key_comes_back_from_json(key):
    again = read_record(EntryKey, json.loads(json.dumps(dataclasses.asdict(key))))
    assert again == key
    assert again.digest == key.digest


@given(keys, keys)
def test_digests_differ_where_keys_do(one, other):
    assert (one.digest == other.digest) is (one == other)
    assert bool(one.differences(other)) is (one != other)


def test_digest_is_the_same_in_every_release():
    # Entries of users are found by it.
    assert make_key().digest.startswith("5442f3a3ae70e6f8")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_hash", "A" * 64),
        ("model_hash", "a" * 63),
        ("graph_hash", None),
        ("kind", "engine"),
        ("decomposition", ""),
        ("decomposition", "../full"),
        ("decomposition", "a/b"),
        ("backend", "Torch"),
        ("precision", "a b"),
        ("backend_version", "8.5\n"),
        ("device", "x" * 301),
        ("options", 3),
        ("shapes", [[1]]),
        ("shapes", ((1, -1),)),
        ("shapes", ((1, True),)),
        ("shapes", ((1.0,),)),
        ("shapes", ((1 << 31,),)),
    ],
)
def test_a_key_that_cannot_be_is_refused(field, value):
    with pytest.raises(ValueError, match=field):
        make_key(**{field: value})


@pytest.mark.parametrize("value", [None, [], {}, {"model_hash": "a" * 64}, "text"])
def test_json_that_is_no_key_is_refused(value):
    with pytest.raises(ValueError, match=r"names with values|is missing"):
        read_record(EntryKey, value)


def make_header():
    then = datetime(2026, 1, 2, tzinfo=timezone.utc)
    return Header(make_key(), "builtin:detector", then, {"a": FileFacts.of(b"x")}, dict(FACTS))


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_header_with_one_wrong_byte_is_refused_or_the_same(position, change):
    text = bytearray(make_header().encode())
    text[position % len(text)] ^= change
    try:
        found = Header.decode(bytes(text))
    except (DamagedEntryError, OtherSchemaError):
        return
    assert found == make_header()
