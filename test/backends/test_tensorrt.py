# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What the adapter asks of TensorRT 8.5, 8.6, 10 and 11, and what it makes of the answers."""

from __future__ import annotations

import logging
import sys
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest
from fake_cuda import FakeArray, FakeCuda
from fake_tensorrt import NO_DRIVER, make_tensorrt
from onnx_parts import OnnxPart, make_classifier, make_exponential, make_join, make_list, make_tail

from jetson_dnn_rt.backends.base import RunnerClosedError
from jetson_dnn_rt.backends.cuda.device import CudaError
from jetson_dnn_rt.backends.cuda.owners import PythonCuda, TorchCuda
from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.backends.tensorrt.build import BuildOptions, build_engine, find_node
from jetson_dnn_rt.backends.tensorrt.runner import EngineError, TensorRtRunner, api
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError

VERSIONS = ("8.5.3.1", "8.6.1", "10.3.0", "11.1.0")


@pytest.fixture(params=VERSIONS)
def trt(request):
    return make_tensorrt(request.param)


REAL = [
    pytest.mark.tensorrt,
    # From 10.12 on TensorRT warns of what 11 lacks.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


class Maker:
    """Makes runners of a TensorRT, made-up or, where `module` is None, real, and closes them."""

    def __init__(self, module, owner):
        self.module, self._owner, self.made = module, owner, []

    def __call__(self, part, precision, **options):
        try:
            cuda = self._owner()
        except BackendUnavailableError as error:
            pytest.skip(str(error))
        self.made.append(TensorRtRunner(part, precision, cuda=cuda, module=self.module, **options))
        return self.made[-1]

    def build(self, part, precision, options=None):
        return build_engine(part, precision, options, module=self.module)


@pytest.fixture(
    params=[*VERSIONS, *(pytest.param(owner, marks=REAL) for owner in (TorchCuda, PythonCuda))]
)
def make(request):
    """The made-up TensorRT of each version, and the real one with either owner of memory."""
    made_up = isinstance(request.param, str)
    if not made_up and not (info := inspect_backend("tensorrt")).available:
        pytest.skip(info.reason)
    maker = (
        Maker(make_tensorrt(request.param), FakeCuda) if made_up else Maker(None, request.param)
    )
    yield maker
    for runner in maker.made:
        runner.close()


def create(part, precision, trt, **options):
    options.setdefault("cuda", FakeCuda())
    return TensorRtRunner(part, precision, module=trt, **options)


def make_image(part, seed=0):
    return np.random.default_rng(seed).random(part.input_shapes[0], np.float32)


def compute(part, *values):
    session = onnxruntime.InferenceSession(part.data, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, values, strict=True)))


# ---- the build -------------------------------------------------------------------------------


def build(trt, precision="fp32", **options):
    """What came of it, the network and the configuration."""
    built = build_engine(make_classifier(), precision, BuildOptions(**options), module=trt)
    return built, *trt.builds[-1]


def test_fp32_is_ieee_with_an_explicit_batch(trt):
    _, network, config = build(trt, workspace_mib=64)
    assert network.explicit  # on 8.x the flag decides whether ONNX can be read at all
    assert config.set == set()  # TF32 is on by default
    assert network.data == make_classifier().data
    assert config.pools == {trt.MemoryPoolType.WORKSPACE: 64 << 20}
    assert config.default_device_type is trt.DeviceType.GPU


@pytest.mark.parametrize("version", VERSIONS[:3])
def test_fp16_up_to_10_is_a_flag_and_pinned_layers(version):
    trt = make_tensorrt(version)
    _, network, config = build(trt, "fp16")
    assert config.set == {trt.BuilderFlag.FP16, trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS}
    assert network.data == make_classifier().data
    pinned = {layer.name for layer in network.layers if layer.pinned is trt.DataType.FLOAT}
    # The mean, what follows it as far as it is fp32, and softmax; not the matrix product.
    assert pinned == {"GlobalAveragePool_mean", "Reshape_vector", "Softmax_scores"}
    for layer in network.layers:
        expected = {0: trt.DataType.FLOAT} if layer.name in pinned else {}
        assert layer.types == expected


def test_fp16_from_11_on_is_written_in_the_network():
    trt = make_tensorrt("11.1.0")
    _, network, config = build(trt, "fp16")
    assert config.set == set()
    tensors = {
        t.name: t.data_type for t in onnx.load_model_from_string(network.data).graph.initializer
    }
    assert tensors["weight__fp16"] == onnx.TensorProto.FLOAT16
    types = {t.name: t.dtype for layer in network.layers for t in layer._outputs}
    assert types["maps"] is trt.DataType.HALF
    assert types["mean"] is trt.DataType.FLOAT
    assert network.inputs[0].dtype is trt.DataType.FLOAT


def test_timing_cache_goes_round(trt, caplog):
    first, *_ = build(trt)
    assert first.timing_cache
    again, _, config = build(trt, timing_cache=first.timing_cache)
    assert config.cache.data == first.timing_cache == again.timing_cache
    assert not caplog.records


@pytest.mark.parametrize("damage", ["other version", "no cache"])
def test_a_timing_cache_that_does_not_fit(trt, damage, caplog):
    cache = b"garbage"
    if damage == "other version":
        cache = build(make_tensorrt("10.9.0"))[0].timing_cache
    built, *_ = build(trt, timing_cache=cache)
    assert built.timing_cache != cache
    assert "timing cache of another GPU or TensorRT" in caplog.text


@pytest.mark.parametrize("version", VERSIONS)
def test_dla(version):
    trt = make_tensorrt(version, dla_cores=2)
    options = BuildOptions(dla_core=1)
    runner = create(make_classifier(), "fp16", trt, options=options)
    config = trt.builds[-1][1]
    assert config.default_device_type is trt.DeviceType.DLA
    assert config.DLA_core == 1
    assert trt.BuilderFlag.GPU_FALLBACK in config.set
    assert runner._runtime.DLA_core == 1
    with pytest.raises(
        BackendUnavailableError, match="dla_core 2 is not there: this machine has 2"
    ):
        build(trt, "fp16", dla_core=2)
    with pytest.raises(BackendUnavailableError, match="a DLA computes in fp16, not in fp32"):
        build(trt, dla_core=1)


@pytest.mark.parametrize(
    ("layer", "node"),
    [
        ("/Exp", "/Exp"),
        ("/Exp_1", "/Exp_1"),
        ("/Exp_17", "/Exp"),
        ("/Conv_0_3", "/Conv_0"),
        ("node_of_scores", "scores"),
        ("node_of_scores_4", "scores"),
        ("(Unnamed Layer* 5) [Shuffle]", ""),
        ("ONNXTRT_ShapeTensor", ""),
    ],
)
def test_layers_find_their_nodes(layer, node):
    assert find_node(layer, {"/Exp", "/Exp_1", "/Conv_0", "scores"}) == node


@pytest.mark.parametrize("version", VERSIONS[:3])
def test_nodes_without_names_are_pinned_as_well(version):
    trt, part = make_tensorrt(version), make_classifier()
    model = onnx.load_model_from_string(part.data)
    for entry in model.graph.node:
        entry.name = ""
    build_engine(OnnxPart(model.SerializeToString(), part.input_shapes), "fp16", module=trt)
    network, _ = trt.builds[-1]
    pinned = {layer.name for layer in network.layers if layer.pinned is trt.DataType.FLOAT}
    assert pinned == {"node_of_mean", "node_of_vector", "node_of_scores"}


# ---- errors ----------------------------------------------------------------------------------


def test_an_operator_that_tensorrt_lacks(trt):
    trt.unsupported = {"Softmax"}
    with pytest.raises(ModelError) as caught:
        build_engine(make_classifier(), "fp32", module=trt)
    text = str(caught.value)
    assert "test:part cannot be read by TensorRT: Softmax 'Softmax_scores': No importer" in text
    assert text.endswith("TensorRT cannot run this operator: use another back end for this stage")


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        (
            "10: Could not find any implementation for node {ForeignNode[/head/Conv]}.",
            "raise workspace_mib",
        ),
        (
            "2: [virtualMemoryBuffer.cpp] Error Code 2: OutOfMemory (no further information)",
            "raise",
        ),
        (
            "6: TensorRT-RTX does not support this compute capability, so the engine cannot be "
            "rebuilt for it.",
            "full@torch-fp16",
        ),
    ],
)
def test_a_build_that_fails(trt, said, fix):
    trt.refuse = said
    with pytest.raises(ModelError, match="cannot be built by TensorRT") as caught:
        build_engine(make_classifier(), "fp16", module=trt)
    assert said in str(caught.value)
    assert fix in str(caught.value)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_driver(version):
    """TensorRT warns, and its constructors raise a TypeError without a reason."""
    trt = make_tensorrt(version, driver=False)
    with pytest.raises(BackendUnavailableError) as caught:
        build_engine(make_classifier(), "fp32", module=trt)
    assert NO_DRIVER in str(caught.value)
    assert "install a newer one" in str(caught.value)
    with pytest.raises(BackendUnavailableError, match="driver"):
        create(make_classifier(), "fp32", trt, engine=b"any")


def test_outputs_without_a_fixed_shape(make):
    # The real one may complain of it itself.
    words = r"output found has the dynamic shape .* list of boxes" if make.module else ""
    with pytest.raises(ModelError, match=words):
        make(make_list(), "fp32")


def test_a_dla_core_that_is_not_there(make):
    with pytest.raises(BackendUnavailableError, match="dla_core 9 is not there"):
        make(make_classifier(), "fp16", options=BuildOptions(dla_core=9))


# ---- the engine ------------------------------------------------------------------------------


@pytest.mark.parametrize("cuda_graph", [True, False])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3)])
def test_results(make, precision, tolerance, cuda_graph):
    part = make_classifier()
    runner = make(part, precision, cuda_graph=cuda_graph)
    assert (runner.backend, runner.precision, runner.device) == ("tensorrt", precision, "cuda")
    assert runner.cuda_graph == cuda_graph
    buffer = runner.allocate_input()
    assert buffer.shape == part.input_shapes[0]
    for seed in range(3):
        buffer[:] = make_image(part, seed)
        scores, best = runner.to_host(runner.run([buffer]))
        expected, number = compute(part, buffer)
        np.testing.assert_allclose(scores, expected, atol=tolerance)
        np.testing.assert_array_equal(best, number)
        # 8.x has no 64-bit integers.
        assert best.dtype == (np.int32 if runner.version.startswith("8") else np.int64)


def test_the_exponential_is_not_fp16(make):
    """exp(11) and more is beyond 65504: in fp16 it would be infinite."""
    part = make_exponential()
    image = np.full(part.input_shapes[0], 8.0, np.float32)  # 0.5 * 3 * 8 = 12
    runner = make(part, "fp16")
    (found,) = runner.to_host(runner.run([image]))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, np.exp(12.0), rtol=1e-2)


def test_an_engine_is_stored_and_taken_again(make):
    part = make_classifier()
    built = make.build(part, "fp16")
    assert built.build_ms > 0
    runner = make(part, "fp16", engine=built.engine)
    outputs = runner.to_host(runner.run([make_image(part)]))
    np.testing.assert_allclose(outputs[0], compute(part, make_image(part))[0], atol=5e-3)
    assert make.module is None or len(make.module.builds) == 1
    assert make.build(part, "fp16", BuildOptions(timing_cache=built.timing_cache)).engine


def test_damaged_engines(make):
    part = make_classifier()
    engine = make.build(part, "fp32").engine
    with pytest.raises(EngineError, match="cannot be loaded"):
        make(part, "fp32", engine=b"no engine" + engine[9:])
    wrong = r"takes \[\(1, 3, 16, 24\)\], needed is \[\(1, 3, 4, 4\)"
    with pytest.raises(EngineError, match=wrong):
        make(make_exponential(), "fp32", engine=engine)


def test_an_engine_of_another_version(trt):
    engine = build_engine(make_classifier(), "fp32", module=make_tensorrt("10.9.0")).engine
    with pytest.raises(EngineError, match=r"Version tag does not match.*build it again here"):
        create(make_classifier(), "fp32", trt, engine=engine)


def test_two_inputs_keep_their_order(make):
    part = make_join()
    values = [make_image(part, seed) - 0.5 for seed in (1, 2)]
    runner = make(part, "fp32")
    for given in (values, values[::-1]):
        (joined,) = runner.to_host(runner.run(given))
        np.testing.assert_allclose(joined, compute(part, *given)[0], atol=1e-6)


def test_inputs_from_the_device_in_either_layout(trt):
    part = make_classifier()
    image = make_image(part)
    last = np.ascontiguousarray(image.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    runner = create(part, "fp32", trt)
    expected = compute(part, image)[0]
    for value in (FakeArray(image.copy()), FakeArray(last)):
        outputs = runner.run([value])
        np.testing.assert_allclose(runner.to_host(outputs)[0], expected, atol=1e-6)


def test_one_stage_hands_device_arrays_to_the_next(make):
    first, second = make_exponential(), make_tail()
    one, other = make(first, "fp16"), make(second, "fp16")
    for seed in range(3):
        image = make_image(first, seed)
        maps = one.run([image])
        assert all(hasattr(array, "__cuda_array_interface__") for array in maps)
        (found, kept) = other.to_host([*other.run(maps), image])
        np.testing.assert_allclose(found, compute(second, *compute(first, image))[0], rtol=1e-2)
        assert kept is image  # what a stage on the CPU has left is on the host already


def test_values_of_another_shape_or_number(trt):
    part = make_join()
    runner = create(part, "fp32", trt)
    image = make_image(part)
    with pytest.raises(ValueError, match="takes 2 values, not 1"):
        runner.run([image])
    with pytest.raises(ValueError, match=r"value 1 .*must be of shape \(1, 4, 5, 6\)"):
        runner.run([image, image[:, :1]])


def test_a_frame_is_a_copy_and_a_launch(trt):
    cuda = FakeCuda()
    runner = create(make_classifier(), "fp16", trt, cuda=cuda)
    cuda.calls.clear()
    outputs = runner.run([make_image(make_classifier())])
    assert cuda.calls == ["copy", "graph"]
    assert not cuda.queue  # done when it returns
    addresses = [array.__cuda_array_interface__["data"] for array in outputs]
    again = runner.run([make_image(make_classifier(), 5)])
    assert [array.__cuda_array_interface__["data"] for array in again] == addresses


class NoCapture(FakeCuda):
    """A device whose stream cannot be captured."""

    def capture(self, work):
        raise RuntimeError("operation not permitted when stream is capturing")


def test_without_a_graph_it_is_queued_and_said_once(trt, caplog):
    part, cuda = make_classifier(), NoCapture()
    runner = create(part, "fp32", trt, cuda=cuda)
    assert not runner.cuda_graph
    cuda.calls.clear()
    for seed in range(3):
        image = make_image(part, seed)
        outputs = runner.to_host(runner.run([image]))
        np.testing.assert_allclose(outputs[0], compute(part, image)[0], atol=1e-6)
    assert "graph" not in cuda.calls
    assert cuda.calls.count("enqueue") == 3
    told = [record for record in caplog.records if "without a CUDA graph" in record.getMessage()]
    assert len(told) == 1
    assert "test:part on tensorrt" in told[0].getMessage()
    assert "not permitted" in told[0].getMessage()
    assert told[0].levelno == logging.WARNING


def test_a_run_that_fails_says_why(trt):
    part = make_classifier()
    runner = create(part, "fp32", trt, cuda=FakeCuda(), cuda_graph=False)
    trt.refuse_run = "1: [runner.cpp::execute] Error Code 1: Cuda Runtime (an illegal access)"
    with pytest.raises(CudaError, match=r"test:part failed in TensorRT: 1: .* illegal access"):
        runner.run([make_image(part)])


@pytest.mark.parametrize("cuda_graph", [True, False])
def test_a_run_that_fails_on_the_device_says_so_at_the_wait_and_can_be_closed(
    cuda_graph, trt, caplog
):
    part, cuda = make_classifier(), FakeCuda()
    runner = create(part, "fp32", trt, cuda=cuda, cuda_graph=cuda_graph)
    trt.break_run = "an illegal memory access was encountered"
    for _ in range(2):
        with pytest.raises(CudaError, match="illegal memory access"):
            runner.run([make_image(part)])
    runner.close()
    assert cuda.closed
    assert "error while it is closed: an illegal memory access" in caplog.text
    with pytest.raises(RunnerClosedError, match="tensorrt"):
        runner.run([make_image(part)])


@pytest.mark.parametrize("version", VERSIONS)
def test_an_engine_of_another_gpu_is_refused_with_the_reason(version):
    part = make_classifier()
    engine = build_engine(part, "fp32", module=make_tensorrt(version, capability="8.6")).engine
    with pytest.raises(EngineError, match=r"incompatible device, expecting compute 8\.7"):
        TensorRtRunner(part, "fp32", engine=engine, cuda=FakeCuda(), module=make_tensorrt(version))


def test_closed_is_closed(trt):
    part, cuda = make_classifier(), FakeCuda()
    runner = create(part, "fp32", trt, cuda=cuda)
    runner.run([make_image(part)])
    runner.close()
    runner.close()
    assert cuda.closed
    with pytest.raises(RunnerClosedError, match="tensorrt"):
        runner.run([make_image(part)])


# ---- the library itself ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "works"), [("8.4.1.5", False), ("8.5.0", True), ("10.0", True)]
)
def test_oldest_version(monkeypatch, version, works):
    module = ModuleType("tensorrt")
    module.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    if works:
        assert api.import_tensorrt() is module
        return
    with pytest.raises(BackendUnavailableError, match=f"{version} is too old, 8.5"):
        api.import_tensorrt()


def test_an_installation_of_nothing(monkeypatch):
    """What `pip install tensorrt` leaves where the libraries could not be fetched."""
    monkeypatch.setitem(sys.modules, "tensorrt", ModuleType("tensorrt"))
    monkeypatch.setattr(api, "has_gpu", lambda: True)
    with pytest.raises(BackendUnavailableError, match="cannot be imported"):
        api.import_tensorrt()


def test_one_logger_for_the_process(trt):
    """TensorRT takes the first one it is given, and warns of each other."""
    assert api.log_of(trt).logger is api.log_of(trt).logger


def test_messages_are_heard_while_listening(trt):
    messages = api.log_of(trt)
    severity = trt.ILogger.Severity
    with messages.listen() as heard:
        for level in ("ERROR", "INTERNAL_ERROR", "WARNING", "INFO", "VERBOSE"):
            for _ in range(2):
                messages.logger.log(severity[level], level.lower())
    messages.logger.log(severity.ERROR, "after")
    assert heard.errors == ["error", "internal_error"]
    assert heard.warnings == ["warning"]


@pytest.mark.parametrize("name", ["nvidia0", "nvhost-gpu", "nvgpu", "dxg"])
def test_a_gpu_is_there_by_its_device_files(tmp_path, name):
    assert not api.has_gpu(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert not api.has_gpu(tmp_path)
    (tmp_path / "dev" / name).touch()
    assert api.has_gpu(tmp_path)
