# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The input pass on a CUDA device: its arithmetic on the host, its compilation for devices."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from typing import Any

import cv2
import numpy as np
import pytest
from encoded_frames import encode_picture
from fake_cuda import FakeArray, FakeCuda
from host_kernel import HostKernel, compile_for_host
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.backends.cuda import input as cuda_input
from jetson_dnn_rt.backends.cuda.input import DevicePreprocessor, make_taps
from jetson_dnn_rt.errors import FrameError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.input.encodings import ENCODINGS
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.input.plans import KEPT
from jetson_dnn_rt.models.input.preprocessing import Preprocessing

EXACT = ("bgr8", "rgb8", "bgra8", "rgba8", "mono8")


@pytest.fixture(scope="module")
def function(tmp_path_factory):
    return compile_for_host(tmp_path_factory.mktemp("kernel"))


@pytest.fixture
def kernel(function):
    return HostKernel(function)


def make_frame(encoding, height, width, padding, seed):
    """Noise in any encoding, rows padded, smooth enough for neighbours to differ by little."""
    shape = ENCODINGS[encoding].shape(height, width)
    generator = np.random.default_rng(seed)
    row = shape[1] * (shape[2] if len(shape) > 2 else 1)
    memory = generator.integers(0, 256, (shape[0], row + padding), np.uint8)
    strides = (row + padding, *np.empty(shape, np.uint8).strides[1:])
    image = np.lib.stride_tricks.as_strided(memory, shape, strides, writeable=False)
    return Frame(image, encoding, 0, 0, owner=memory, device_address=int(memory.ctypes.data))


def run_both(frame, expected, kernel, *, fetched=False):
    """The input as the device makes it, and as the CPU does."""
    shape = (1, 3, expected.height, expected.width)
    cuda = FakeCuda()
    device = cuda.allocate(shape, np.float32)
    there = DevicePreprocessor(expected, device, cuda, kernel, fetched=fetched)  # type: ignore[arg-type]
    here = np.zeros(shape, np.float32)
    geometry = Preprocessor(expected, here).write(frame)
    assert there.can_read(frame)
    assert there.write(frame) == geometry
    there.close()
    return device.memory, here


@given(
    encoding=st.sampled_from(sorted(ENCODINGS)),
    half_height=st.integers(1, 40),
    half_width=st.integers(1, 40),
    padding=st.integers(0, 5),
    size=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    resize=st.sampled_from(("letterbox_topleft", "letterbox_center", "stretch")),
    color=st.sampled_from(("bgr", "rgb")),
    seed=st.integers(0, 1 << 20),
    fetched=st.booleans(),
)
@settings(max_examples=80)
def test_the_device_gives_what_the_cpu_gives(
    function, encoding, half_height, half_width, padding, size, resize, color, seed, fetched
):
    expected = Preprocessing(*size, resize=resize, color=color, scale=1.0)
    # A frame is fetched by one copy, which knows no rows.
    frame = make_frame(encoding, 2 * half_height, 2 * half_width, padding * (not fetched), seed)
    there, here = run_both(frame, expected, HostKernel(function), fetched=fetched)
    if encoding in EXACT:
        np.testing.assert_array_equal(there, here)
    else:
        assert np.abs(there - here).max() <= 1.0  # a step of a byte, before normalisation


@pytest.mark.parametrize("encoding", EXACT)
@pytest.mark.parametrize("size", [(720, 1280), (481, 641), (208, 208), (416, 416)])
def test_sizes_of_cameras_come_out_the_same_to_the_bit(kernel, encoding, size):
    expected = Preprocessing(
        416, 416, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), resize="letterbox_center"
    )
    there, here = run_both(make_frame(encoding, *size, 0, 1), expected, kernel)
    np.testing.assert_array_equal(there, here)


@pytest.mark.parametrize("encoding", sorted(set(ENCODINGS) - set(EXACT)))
def test_pictures_of_yuv_and_bayer_are_the_same_within_a_step(kernel, encoding):
    picture = cv2.GaussianBlur(
        np.random.default_rng(3).integers(0, 256, (360, 640, 3), np.uint8), (0, 0), 4.0
    )
    image = encode_picture(cv2.convertScaleAbs(picture, alpha=4.0, beta=-384.0), encoding)
    frame = Frame(image, encoding, 0, 0, device_address=int(image.ctypes.data))
    there, here = run_both(frame, Preprocessing(208, 208, scale=1.0), kernel)
    difference = np.abs(there - here)
    assert difference.max() <= 1.0
    assert (difference > 0).mean() < 0.05


def make_device(kernel, *, fetched):
    cuda = FakeCuda()
    device = cuda.allocate((1, 3, 32, 32), np.float32)
    return (
        DevicePreprocessor(Preprocessing(32, 32), device, cuda, kernel, fetched=fetched),  # type: ignore[arg-type]
        cuda,
    )


@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    halves=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=10),
    turns=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(EXACT)), max_size=25),
    resize=st.sampled_from(("letterbox_topleft", "letterbox_center", "stretch")),
    fetched=st.booleans(),
    moves=st.sets(st.integers(0, 24)),
)
@settings(max_examples=40)
def test_sizes_in_any_order_come_out_as_in_a_new_input(
    function, size, halves, turns, resize, fetched, moves
):
    expected, cuda = Preprocessing(*size, resize=resize), FakeCuda()
    device = cuda.allocate((1, 3, *size), np.float32)
    kernel: Any = HostKernel(function)
    there = DevicePreprocessor(expected, device, cuda, kernel, fetched=fetched)  # type: ignore[arg-type]
    for number, (place, encoding) in enumerate(turns):
        if number in moves:
            device = cuda.allocate((1, 3, *size), np.float32)
            there.move(device)
        height, width = halves[place % len(halves)]
        frame = make_frame(encoding, 2 * height, 2 * width, 0, number)
        here = np.zeros((1, 3, *size), np.float32)
        assert there.write(frame) == Preprocessor(expected, here).write(frame)
        np.testing.assert_array_equal(device.memory, here)
        copied = frame.image.nbytes if fetched else 0
        assert there.written_bytes == here.nbytes + copied
    distinct = {(halves[place % len(halves)], encoding) for place, encoding in turns}
    assert there.planned >= len(distinct)
    assert there.planned == len(distinct) or len(distinct) > KEPT


def test_sizes_in_turn_take_no_table_anew_and_one_copy_of_a_frame(kernel):
    device, cuda = make_device(kernel, fetched=True)
    allocated: list[tuple[int, ...]] = []
    allocate = cuda.allocate
    cuda.allocate = lambda shape, dtype: (  # type: ignore[method-assign]
        allocated.append(tuple(shape)) if dtype is np.uint8 else None,
        allocate(shape, dtype),
    )[1]
    frames = [make_frame("bgr8", *size, 0, 5) for size in ((48, 64), (64, 48), (20, 20))]
    for frame in frames:
        device.write(frame)
    cuda.calls.clear()
    for frame in frames * 2:
        device.write(frame)
    assert cuda.calls == ["copy", "kernel"] * 6
    assert device.planned == 3
    assert allocated == [(48 * 64 * 3,)]  # for the largest


def test_what_is_written_is_counted(kernel):
    frame = make_frame("bgr8", 48, 64, 0, 5)
    for fetched, bytes_of_the_frame in ((False, 0), (True, 48 * 64 * 3)):
        device, _ = make_device(kernel, fetched=fetched)
        device.write(frame)
        assert device.written_bytes == 3 * 32 * 32 * 4 + bytes_of_the_frame


def test_a_second_frame_of_a_size_takes_no_table_anew(kernel):
    device, cuda = make_device(kernel, fetched=True)
    device.write(make_frame("bgr8", 48, 64, 0, 5))
    cuda.calls.clear()
    device.write(make_frame("bgr8", 48, 64, 0, 6))
    assert cuda.calls == ["copy", "kernel"]
    device.write(make_frame("bgr8", 50, 64, 0, 6))
    assert cuda.calls.count("copy") == 4  # frame of before, two tables, this frame


def test_frames_out_of_reach_are_not_read(kernel):
    frame, padded = make_frame("bgr8", 48, 64, 0, 5), make_frame("bgr8", 48, 64, 3, 5)
    in_place, _ = make_device(kernel, fetched=False)
    fetching, _ = make_device(kernel, fetched=True)
    assert in_place.can_read(frame)
    assert in_place.can_read(padded)
    assert fetching.can_read(frame)
    assert not fetching.can_read(padded)  # the copy knows no rows
    frame.device_address = 0
    assert not in_place.can_read(frame)


def test_a_bad_frame_is_refused_before_anything_is_queued(kernel):
    device, cuda = make_device(kernel, fetched=False)
    bad = Frame(np.zeros((4, 4, 2), np.uint8), "bgr8", 0, 0, device_address=1)
    with pytest.raises(FrameError, match="needs 3 channels"):
        device.write(bad)
    assert not cuda.calls


def test_an_input_with_its_channels_last(kernel):
    frame, expected = make_frame("bgr8", 48, 64, 0, 5), Preprocessing(32, 40)
    memory = np.zeros((1, 32, 40, 3), np.float32)
    device = FakeArray(memory.transpose(0, 3, 1, 2))
    DevicePreprocessor(expected, device, FakeCuda(), kernel, fetched=False).write(frame)  # type: ignore[arg-type]
    _, here = run_both(frame, expected, kernel)
    np.testing.assert_array_equal(device.memory, here)


def test_it_is_queued_on_the_stream_of_its_thread_and_deadline_class(kernel):
    device, cuda = make_device(kernel, fetched=True)
    device.write(make_frame("bgr8", 48, 64, 0, 5), urgency=2)
    assert cuda.used == [None, (threading.get_ident(), 2)]  # tables come on a stream of their own


def test_another_input_is_written_with_the_same_tables(kernel):
    device, cuda = make_device(kernel, fetched=False)
    frame = make_frame("bgr8", 48, 64, 0, 5)
    device.write(frame)
    first: Any = device.destination
    second = cuda.allocate((1, 3, 32, 32), np.float32)
    cuda.calls.clear()
    device.move(second)
    device.write(frame)
    assert cuda.calls == ["kernel"]
    np.testing.assert_array_equal(second.memory, first.memory)
    with pytest.raises(ValueError, match="has another layout"):
        device.move(cuda.allocate((1, 3, 32, 31), np.float32))


def test_an_input_of_another_shape_is_refused(kernel):
    with pytest.raises(ValueError, match="destination must be float32"):
        DevicePreprocessor(
            Preprocessing(32, 32),
            FakeArray(np.zeros((1, 3, 32, 31), np.float32)),
            FakeCuda(),
            kernel,  # type: ignore[arg-type]
            fetched=False,
        )


@given(source=st.integers(1, 3000), target=st.integers(1, 700), columns=st.booleans())
def test_taps_lie_in_the_picture(source, target, columns):
    taps = make_taps(source, target, columns=columns)
    assert taps.dtype == np.int32
    assert taps[:, :2].min() >= 0
    assert taps[:, :2].max() < source
    assert (taps[:, 2:] >= 0).all()
    assert (abs(taps[:, 2] + taps[:, 3] - 2048) <= 1).all()
    assert (np.diff(taps[:, 0]) >= 0).all()


def test_nvcc_compiles_it_for_xavier_orin_and_hopper(tmp_path):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("there is no nvcc")
    listed = [nvcc, "--list-gpu-arch"]
    known = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    # CUDA 13 has left Xavier (7.2) behind.
    wanted = [arch for arch in ("72", "87", "90") if f"compute_{arch}" in known]
    assert wanted
    codes = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in wanted]
    binary = tmp_path / "input_pass.fatbin"
    options = ["-fatbin", *codes, "-fmad=false", "-Werror", "all-warnings", "-o", str(binary)]
    subprocess.run([nvcc, *options, str(cuda_input.SOURCE)], check=True)
    assert binary.stat().st_size > 0


def test_structures_are_those_of_the_source(function):
    """A field that the host misplaces would be read as another: sizes and offsets, by g++."""
    del function  # skips where there is no compiler
    checks = []
    for name in ("Component", "Pass"):
        structure = getattr(cuda_input, name)
        checks.append(f"static_assert(sizeof({name}) == {ctypes.sizeof(structure)});")
        for field, *_ in structure._fields_:
            offset = getattr(structure, field).offset
            checks.append(f"static_assert(__builtin_offsetof({name}, {field}) == {offset});")
    source = cuda_input.SOURCE.read_text(encoding="utf-8") + "\n".join(checks)
    command = ["g++", "-std=c++17", "-fsyntax-only", "-x", "c++", "-"]
    subprocess.run(command, input=source, text=True, check=True)
