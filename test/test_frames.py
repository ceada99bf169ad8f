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
