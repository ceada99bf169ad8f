# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

import numpy as np

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
