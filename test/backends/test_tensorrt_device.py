"""The adapter on a real TensorRT and a real device; the same questions as to the fake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx_parts import OnnxPart, make_classifier, make_exponential, make_join, make_list, make_tail

from jetson_dnn_rt.backends.cuda.device import Cuda
from jetson_dnn_rt.backends.cuda.owners import PythonCuda, TorchCuda
from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.backends.tensorrt.build import BuildOptions, build_engine
from jetson_dnn_rt.backends.tensorrt.runner import EngineError, TensorRtRunner
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError

pytestmark = [
    pytest.mark.tensorrt,
    # From 10.12 on TensorRT warns of what 11 lacks.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def need_tensorrt() -> None:
    info = inspect_backend("tensorrt")
    if not info.available:
        pytest.skip(info.reason)


@pytest.fixture(params=[TorchCuda, PythonCuda])
def create(request: pytest.FixtureRequest) -> Iterator[Callable[..., TensorRtRunner]]:
    """Runners whose memory either owner has."""
    runners: list[TensorRtRunner] = []

    def create(part: OnnxPart, precision: str, **options: Any) -> TensorRtRunner:
        try:
            cuda: Cuda = request.param()
        except BackendUnavailableError as error:
            pytest.skip(str(error))
        runners.append(TensorRtRunner(part, precision, cuda=cuda, **options))
        return runners[-1]

    yield create
    for runner in runners:
        runner.close()


def make_image(part: OnnxPart, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(part.input_shapes[0], np.float32)


def compute(part: OnnxPart, *values: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(part.data, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, values, strict=True)))


@pytest.mark.parametrize("cuda_graph", [True, False])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3)])
def test_results(create, precision, tolerance, cuda_graph):
    part = make_classifier()
    runner = create(part, precision, cuda_graph=cuda_graph)
    assert runner.cuda_graph == cuda_graph
    buffer = runner.allocate_input()
    for seed in range(3):
        buffer[:] = make_image(part, seed)
        scores, best = runner.to_host(runner.run([buffer]))
        expected, number = compute(part, buffer)
        np.testing.assert_allclose(scores, expected, atol=tolerance)
        np.testing.assert_array_equal(best, number)


def test_the_exponential_is_not_fp16(create):
    """exp(11) and more is beyond 65504: in fp16 it would be infinite."""
    part = make_exponential()
    image = np.full(part.input_shapes[0], 8.0, np.float32)  # 0.5 * 3 * 8 = 12
    (found,) = (r := create(part, "fp16")).to_host(r.run([image]))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, np.exp(12.0), rtol=1e-2)


def test_an_engine_is_stored_and_taken_again(create):
    part = make_classifier()
    built = build_engine(part, "fp16")
    assert built.engine
    assert built.timing_cache
    runner = create(part, "fp16", engine=built.engine)
    found = runner.to_host(runner.run([make_image(part)]))
    np.testing.assert_allclose(found[0], compute(part, make_image(part))[0], atol=5e-3)
    again = build_engine(part, "fp16", BuildOptions(timing_cache=built.timing_cache))
    assert again.engine


def test_damaged_engines(create):
    part = make_classifier()
    engine = build_engine(part, "fp32").engine
    with pytest.raises(EngineError, match="cannot be loaded"):
        create(part, "fp32", engine=b"no engine" + engine[9:])
    with pytest.raises(EngineError, match="needed is"):
        create(make_exponential(), "fp32", engine=engine)


def test_two_inputs_keep_their_order(create):
    part = make_join()
    values = [make_image(part, seed) - 0.5 for seed in (1, 2)]
    runner = create(part, "fp32")
    for given in (values, values[::-1]):
        (joined,) = runner.to_host(runner.run(given))
        np.testing.assert_allclose(joined, compute(part, *given)[0], atol=1e-6)


def test_one_stage_hands_device_arrays_to_the_next(create):
    first, second = make_exponential(), make_tail()
    one, other = create(first, "fp16"), create(second, "fp16")
    for seed in range(3):
        image = make_image(first, seed)
        (found,) = other.to_host(other.run(one.run([image])))
        np.testing.assert_allclose(found, compute(second, *compute(first, image))[0], rtol=1e-2)


def test_outputs_without_a_fixed_shape(create):
    with pytest.raises(ModelError):
        create(make_list(), "fp32")


def test_a_dla_core_that_is_not_there(create):
    with pytest.raises(BackendUnavailableError, match="dla_core 9 is not there"):
        create(make_classifier(), "fp16", options=BuildOptions(dla_core=9))
