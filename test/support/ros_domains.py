# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ROS domains that no other run of tests on this machine has.

Numbers drawn from process ids meet by chance where several runs share a machine, and then the
nodes of one hear those of the other. A claim is an abstract socket: like the ports of DDS it
belongs to the network namespace, and it ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

COUNT = 100
"""Domains from 1 on: up to 101 their ports are below those that Linux gives to anybody."""

_claims: dict[int, socket.socket] = {}


def claim_domain() -> int:
    """Return the number of a domain that is this process' own until it ends or gives it back."""
    # Not all begin with 1: a program that was stopped may have left nodes behind.
    begin = os.getpid()
    for number in ((begin + step) % COUNT + 1 for step in range(COUNT)):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0jetson_dnn_rt-ros-domain-{number}")
        except OSError:
            claim.close()
        else:
            _claims[number] = claim
            return number
    raise RuntimeError(f"{COUNT} other runs of tests have all ROS domains of this machine")


@contextlib.contextmanager
def claimed_domain() -> Iterator[int]:
    """A domain for some time."""
    number = claim_domain()
    try:
        yield number
    finally:
        _claims.pop(number).close()
