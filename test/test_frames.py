# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.frames import Frame, FramePool


def test_a_buffer_returns_when_the_last_frame_is_gone():
    pool = FramePool((4, 4, 3), size=1)
    loan = pool.borrow()
    address = loan.buffer.ctypes.data
    frame = Frame(loan.buffer, "bgr8", 0, 0, owner=loan)
    holder = frame
    del loan, frame
    assert pool.borrow().buffer.ctypes.data != address
    assert pool.allocated == 2
    del holder
    addresses = {pool.borrow().buffer.ctypes.data for _ in range(3)}
    assert address in addresses
    assert pool.allocated == 2


def test_size_of_a_frame():
    frame = Frame(np.zeros((3, 5, 3), np.uint8), "bgr8", 0, 0)
    assert (frame.height, frame.width) == (3, 5)
    frame = Frame(np.zeros((6, 8), np.uint8), "nv12", 0, 0)
    assert (frame.height, frame.width) == (4, 8)


def test_memory_of_another_kind():
    made = []

    def allocate(shape):
        made.append(np.zeros(shape, np.uint8))
        return made[-1], 0x1000 * len(made)

    pool = FramePool((4, 4, 3), size=1, allocate=allocate)
    first, second = pool.borrow(), pool.borrow()
    assert (first.buffer is made[0], first.device_address) == (True, 0x1000)
    assert (second.buffer is made[1], second.device_address) == (True, 0x2000)
    del first
    again = pool.borrow()
    assert (again.buffer is made[0], again.device_address) == (True, 0x1000)
    assert len(made) == 2


SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))


@given(steps=st.lists(st.tuples(SHAPES, st.integers(0, 3)), max_size=60))
def test_frames_of_any_size_share_a_bounded_memory(steps):
    """Up to four frames are held; each keeps its pixels until it is gone."""
    there: list[int] = []

    def allocate(shape):
        there.append(math.prod(shape))
        return np.zeros(shape, np.uint8), 0x1000

    pool = FramePool((4, 4, 3), size=2, allocate=allocate)
    held: dict[int, tuple[Frame, int]] = {}
    largest = 48
    for number, (shape, place) in enumerate(steps):
        largest = max(largest, math.prod(shape))
        held.pop(place, None)
        loan = pool.borrow(shape)
        assert loan.buffer.shape == shape
        assert loan.buffer.flags.c_contiguous
        assert loan.device_address == 0x1000
        loan.buffer[:] = number
        held[place] = Frame(loan.buffer, "bgr8", 0, 0, owner=loan), number
        del loan
        assert all((frame.image == value).all() for frame, value in held.values())
        kept = [frame.kept_bytes for frame, _ in held.values()]
        assert sum(kept) <= len(held) * largest
    held.clear()
    assert pool.allocated <= 4
    assert len(pool._free) == pool.allocated
    assert sum(image.nbytes for image, _ in pool._free) == pool.allocated_bytes
    assert pool.allocated_bytes <= pool.allocated * largest


def test_one_size_and_sizes_in_turn_allocate_nothing_after_the_first():
    made = []

    def allocate(shape):
        made.append(shape)
        return np.zeros(shape, np.uint8), 0

    pool = FramePool((4, 4, 3), size=2, allocate=allocate)
    for _ in range(20):
        for shape in ((4, 4, 3), (9, 9, 3), (2, 30, 3)):
            pool.borrow(shape)
    assert made == [(4, 4, 3), (4, 4, 3), (9, 9, 3)]


def test_a_frame_keeps_the_whole_buffer_of_its_view():
    """EDGES 9: through views of views, and memory that says no size counts as what is seen."""
    message = bytearray(1000)
    part = np.frombuffer(memoryview(message)[100:], np.uint8)
    assert Frame(part[:12].reshape(2, 2, 3)[::-1], "bgr8", 0, 0).kept_bytes == 1000
    assert Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", 0, 0).kept_bytes == 12
    assert Frame(np.zeros((0, 0), np.uint8), "", 0, 0).kept_bytes == 0

    class OfDevice:
        __array_interface__ = part[:24].__array_interface__

    assert Frame(np.asarray(OfDevice())[:12], "mono8", 0, 0).kept_bytes == 12
