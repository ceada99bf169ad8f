# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Compiled networks in the library: read by the next start, and made again when unusable."""

import logging
from contextlib import ExitStack

import numpy as np
import pytest

from jetson_dnn_rt.backends.base import NO_BF16
from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.platforms.machine import hash_cpu_features
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.library.transfer import holds_code
from jetson_dnn_rt.variants.network import IMAGE, Network, run_piece
from jetson_dnn_rt.variants.running.compiled_network import FILE
from jetson_dnn_rt.variants.running.engines import make_runner
from jetson_dnn_rt.variants.spec import FULL, VariantSpec

BACKENDS = ("openvino", "onnxruntime")
every_backend = pytest.mark.parametrize("backend", BACKENDS)


class Watched:
    """A part that counts how often its network is asked for, which compiling does."""

    def __init__(self, part):
        self._part = part
        self.name, self.input_shapes = part.name, part.input_shapes
        self.graph_hash, self.inner_outputs = part.graph_hash, part.inner_outputs
        self.compiled = 0

    def onnx_model(self):
        self.compiled += 1
        return self._part.onnx_model()


@pytest.fixture(scope="module")
def model():
    return load_model("builtin:detector")


@pytest.fixture
def part(model):
    return Watched(model)


@pytest.fixture
def run(model, part, library):
    """Make a runner, run it on one image, and return its outputs."""
    image = np.random.default_rng(0).random(model.input_shape, np.float32)

    def run(backend, precision="fp32", threads=1, library=library):
        if not (info := inspect_backend(backend)).available:
            pytest.skip(f"{backend}: {info.reason}")
        spec = VariantSpec.parse(f"full@{backend}-{precision}")
        runner = make_runner(model, spec, part, threads=threads, library=library)
        try:
            return [np.array(value) for value in runner.to_host(runner.run([image]))]
        finally:
            runner.close()

    return run


def are_equal(one, other):
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def find_file(library):
    (listing,) = library.entries()
    return listing.path / FILE


@every_backend
@pytest.mark.parametrize("threads", [1, 2])
def test_second_runner_is_read_and_gives_the_same_bits(run, part, library, backend, threads):
    plain = run(backend, threads=threads, library=None)
    first = run(backend, threads=threads)
    assert part.compiled == 2
    # Another process would have a library of its own.
    second = run(backend, threads=threads, library=Library(library.root))
    assert part.compiled == 2
    assert are_equal(plain, first)
    assert are_equal(first, second)


def test_bf16_stays_bf16(run, part):
    if "bf16" not in inspect_backend("openvino").precisions:
        pytest.skip(NO_BF16)
    first, second = run("openvino", "bf16"), run("openvino", "bf16")
    assert part.compiled == 1
    assert are_equal(first, second)
    assert not are_equal(second, run("openvino", "fp32"))


@every_backend
def test_other_threads_are_another_entry(run, part, library, backend):
    run(backend, threads=1)
    run(backend, threads=2)
    assert part.compiled == 2
    one, two = (listing.header.key for listing in library.entries())
    assert set(one.differences(two)) == {"options"}
    assert hash_cpu_features() in one.options
    assert holds_code(one)  # so that it is never imported from elsewhere


@every_backend
def test_damaged_file_is_logged_and_made_again(run, part, library, backend, caplog):
    first = run(backend)
    path = find_file(library)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert are_equal(run(backend, library=Library(library.root)), first)
    assert part.compiled == 2
    assert f"SHA-256 of {FILE} differs" in caplog.text
    run(backend)
    assert part.compiled == 2  # the new one is whole


@every_backend
def test_what_the_back_end_cannot_read_is_made_again(run, part, library, backend, caplog):
    first = run(backend)
    (listing,) = library.entries()
    library.store(listing.header.key, {FILE: b"nonsense"}, {})
    assert are_equal(run(backend), first)
    assert part.compiled == 2
    assert "again" in caplog.text
    run(backend)
    assert part.compiled == 2


@every_backend
def test_file_that_others_may_write_is_not_run(run, part, library, backend, caplog):
    run(backend)
    find_file(library).chmod(0o666)
    run(backend, library=Library(library.root))
    assert part.compiled == 2
    assert "may be written by other users" in caplog.text


@every_backend
def test_library_that_cannot_be_written_costs_a_warning(
    run, part, library, backend, caplog, monkeypatch
):
    def refuse(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Library, "_make_temporary", refuse)
    with caplog.at_level(logging.WARNING):
        run(backend)
    assert "cannot be written (No space left on device)" in caplog.text
    assert not library.entries()


@every_backend
def test_stages_read_from_the_library_fit_each_other(model, library, backend):
    """OpenVINO's maps between stages have their channels last: that is read back, too."""
    pytest.importorskip("torch", reason="torch is not installed: it cuts networks")
    spec = VariantSpec.parse(f"full@{backend}-fp32")
    network = Network(model, 3)
    image = np.random.default_rng(0).random(model.input_shape, np.float32)

    def run():
        values = {IMAGE: image}
        with ExitStack() as stack:
            for piece in network.pieces(FULL):
                runner = make_runner(model, spec, piece.part, threads=1, library=library)
                stack.callback(runner.close)
                results = run_piece(piece, runner, values)
            return [np.array(value) for value in results]

    def find_written():
        stats = {entry.path: (entry.path / FILE).stat() for entry in library.entries()}
        return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in stats.items()}

    first = run()
    written = find_written()
    assert len(written) == 3
    assert len(first) == 2
    assert are_equal(run(), first)
    assert find_written() == written
