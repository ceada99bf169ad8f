"""The stages of a task: every kind of model in every variant, and what the stages promise."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import calibrate, make_model

from jetson_dnn_rt.backends.base import RunnerClosedError
from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.clock import VirtualClock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError, FrameError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running.pipeline import Pipeline, name_stages
from jetson_dnn_rt.variants.running.variant_set import VariantSet, build_pipeline, choose_default
from jetson_dnn_rt.variants.spec import VariantSpec

OTHERS = ("full@onnxruntime-fp32", "full@openvino-fp32", "full@torch-bf16", "full@openvino-bf16")


def make_frame(seed: int = 0, height: int = 120, width: int = 200) -> Frame:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Frame(image, "bgr8", 0, seed)


def build(model: Model, name: str, settings: DecoderSettings | None = None) -> Pipeline:
    spec = VariantSpec.parse(name)
    info = inspect_backend(spec.backend)
    if spec.precision not in info.precisions:
        pytest.skip(f"{name}: {info.reason}")
    return build_pipeline(model, spec, settings or DecoderSettings(), threads=1)


def run(pipeline: Pipeline, frame: Frame) -> Result:
    work = Work(frame)
    for stage in pipeline.stages:
        assert work.result is None
        stage.run(work)
    assert work.result is not None
    return work.result


def save_calibrated(name: str, size: tuple[int, int], path: Path) -> str:
    """Weights of an architecture of torchvision that tell one pixel from the other."""
    from torchvision.models import get_model

    keywords = {} if name.startswith("mobilenet") else {"weights_backbone": None}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = get_model(name, weights=None, **keywords).eval()
    calibrate(module, size, as_list=name.startswith("ssd"))
    torch.save(module.state_dict(), path)
    return str(path)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("weights") / "w.pth"
    weights = save_calibrated("mobilenet_v3_small", (64, 64), path)
    return load_model("torchvision:mobilenet_v3_small", weights=weights, input_size=(64, 64))


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("weights") / "w.pth"
    weights = save_calibrated("lraspp_mobilenet_v3_large", (64, 96), path)
    return load_model(
        "torchvision:lraspp_mobilenet_v3_large", weights=weights, input_size=(64, 96)
    )


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("weights") / "w.pth"
    weights = save_calibrated("ssdlite320_mobilenet_v3_large", (320, 320), path)
    return load_model("torchvision:ssdlite320_mobilenet_v3_large", weights=weights)


@pytest.mark.parametrize("name", OTHERS)
def test_classification_agrees(classifier: Model, name: str) -> None:
    settings = DecoderSettings(top_k=1000)
    exact, other = (
        build(classifier, "full@torch-fp32", settings),
        build(classifier, name, settings),
    )
    one, two = run(exact, make_frame()), run(other, make_frame())
    assert isinstance(one, Classification)
    assert isinstance(two, Classification)
    scores = [np.empty(1000), np.empty(1000)]
    for row, result in zip(scores, (one, two), strict=True):
        row[result.class_ids] = result.scores
    assert np.ptp(scores[0]) > 1e-4  # the classes do differ
    if name.endswith("fp32"):
        np.testing.assert_allclose(scores[1], scores[0], atol=1e-5)
    else:
        assert np.corrcoef(scores)[0, 1] > 0.99


@pytest.mark.parametrize("name", OTHERS)
def test_segmentation_agrees(segmenter: Model, name: str) -> None:
    frame = make_frame()
    one, two = run(build(segmenter, "full@torch-fp32"), frame), run(build(segmenter, name), frame)
    assert isinstance(one, Segmentation)
    assert isinstance(two, Segmentation)
    assert one.mask.shape == (120, 200)
    assert len(np.unique(one.mask)) >= 3  # the pixels do differ
    assert np.mean(one.mask == two.mask) >= (0.999 if name.endswith("fp32") else 0.9)


@pytest.mark.parametrize("name", OTHERS)
def test_detection_agrees(detector: Model, name: str) -> None:
    settings = DecoderSettings(confidence=0.0, max_detections=50)
    frame = make_frame()
    one = run(build(detector, "full@torch-fp32", settings), frame)
    two = run(build(detector, name, settings), frame)
    assert isinstance(one, Detections)
    assert isinstance(two, Detections)
    assert len(one) == len(two) == 50
    assert np.ptp(one.scores) > 0.005  # the boxes do differ
    assert np.all(one.boxes >= 0)
    assert np.all(one.boxes <= [200, 120, 200, 120])
    if name.endswith("fp32"):
        np.testing.assert_allclose(two.scores, one.scores, atol=1e-4)
        np.testing.assert_allclose(two.boxes[:10], one.boxes[:10], atol=0.1)
        np.testing.assert_array_equal(two.class_ids[:10], one.class_ids[:10])
    else:
        np.testing.assert_allclose(two.scores[:10], one.scores[:10], rtol=0.1)


@pytest.mark.parametrize("kind", ["detector", "segmenter"])
@pytest.mark.parametrize("name", OTHERS)
def test_builtin_networks_agree(kind: str, name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        module = builtin.build(kind).eval()
    size = builtin.INPUT_SIZE[kind]
    model = make_model(calibrate(module, size), size, builtin.labels(kind))
    pipelines = build(model, "full@torch-fp32"), build(model, name)
    one, two = (run(pipeline, make_frame()) for pipeline in pipelines)
    short = name.endswith("bf16")
    if isinstance(one, Segmentation):
        assert isinstance(two, Segmentation)
        assert np.mean(one.mask == two.mask) >= (0.9 if short else 0.999)
        return
    (boxes, scores), (other_boxes, other_scores) = (
        p.segments[0].runner.run([p.processor.image]) for p in pipelines
    )
    np.testing.assert_allclose(other_scores, scores, atol=0.02 if short else 1e-5)
    # Around x = 300 bf16 has steps of 2: the corners must be added up in fp32.
    np.testing.assert_allclose(other_boxes, boxes, atol=0.5 if short else 1e-3)


def test_exported_program_in_every_variant(tmp_path: Path, classifier: Model) -> None:
    program = torch.export.export(classifier.torch_module(), (torch.zeros(1, 3, 64, 64),))
    torch.export.save(program, tmp_path / "m.pt2")
    settings = DecoderSettings(top_k=1000)
    preprocessing = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    model = load_model(f"exported:{tmp_path / 'm.pt2'}", preprocessing=preprocessing)
    frame = make_frame()
    expected = run(build(classifier, "full@torch-fp32", settings), frame)
    assert isinstance(expected, Classification)
    for name in ("full@torch-fp32", *OTHERS):
        found = run(build(model, name, settings), frame)
        assert isinstance(found, Classification)
        if name.endswith("fp32"):
            np.testing.assert_array_equal(found.class_ids[:5], expected.class_ids[:5])
        tolerance = 1e-5 if name.endswith("fp32") else 2e-3
        np.testing.assert_allclose(found.scores, expected.scores, atol=tolerance)


def test_stages_have_their_names(classifier: Model) -> None:
    pipeline = build(classifier, "full@torch-fp32")
    assert tuple(stage.name for stage in pipeline.stages) == name_stages(1)


@pytest.mark.parametrize("name", ["full@torch-fp32", *OTHERS])
def test_results_outlive_the_next_frame(segmenter: Model, name: str) -> None:
    pipeline = build(segmenter, name)
    first = run(pipeline, make_frame(0))
    assert isinstance(first, Segmentation)
    before = first.mask.copy()
    second = run(pipeline, make_frame(1))
    assert isinstance(second, Segmentation)
    np.testing.assert_array_equal(first.mask, before)
    assert not np.array_equal(first.mask, second.mask)


def test_a_bad_frame_fails_alone(classifier: Model) -> None:
    pipeline = build(classifier, "full@onnxruntime-fp32")
    expected = run(pipeline, make_frame())
    with pytest.raises(FrameError):
        run(pipeline, Frame(np.zeros((4, 4), np.uint8), "bgr8", 0, 1))
    again = run(pipeline, make_frame())
    assert isinstance(expected, Classification)
    assert isinstance(again, Classification)
    np.testing.assert_array_equal(again.scores, expected.scores)


def test_closed_pipeline(classifier: Model) -> None:
    pipeline = build(classifier, "full@torch-fp32")
    pipeline.close()
    pipeline.close()
    with pytest.raises(RunnerClosedError):
        run(pipeline, make_frame())


def test_the_frame_is_not_written_to(detector: Model) -> None:
    frame = make_frame(height=320, width=320)  # no resize: the source itself is converted
    before = frame.image.copy()
    frame.image.flags.writeable = False
    run(build(detector, "full@torch-fp32"), frame)
    np.testing.assert_array_equal(frame.image, before)


# ---- null


def test_scripted_times_of_every_stage() -> None:
    clock = VirtualClock()
    model = load_model("null:preprocess=1;inference=10/20;decode=2")
    pipeline = build_pipeline(
        model, VariantSpec.parse("full@null"), DecoderSettings(), threads=1, clock=clock
    )
    ends: list[int] = []

    def work() -> None:
        for _ in range(2):
            item = Work(make_frame())
            for stage in pipeline.stages:
                stage.run(item)
                ends.append(clock.now_ns() // 1_000_000)
        clock.leave()

    clock.participate()
    thread = threading.Thread(target=work)
    thread.start()
    clock.run_until(100_000_000)
    thread.join()
    assert ends == [1, 11, 13, 14, 34, 36]


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("detection", Detections),
        ("segmentation", Segmentation),
        ("classification", Classification),
    ],
)
def test_null_results_look_like_the_tasks(kind: str, result: type) -> None:
    pipeline = build(load_model(f"null:0,{kind}"), "full@null")
    found = run(pipeline, make_frame())
    assert isinstance(found, result)
    if isinstance(found, Detections):
        assert len(found) == 0
    if isinstance(found, Segmentation):
        assert found.mask.shape == (120, 200)


# ---- which variants can be had


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("full@tvm-fp32", "run jetson-dnn-rt build|pip install apache-tvm"),
        ("tucker-0.50@torch-fp32", "not in the library"),
    ],
)
def test_variants_that_cannot_be_had(classifier: Model, name: str, words: str) -> None:
    with pytest.raises(BackendUnavailableError, match=words):
        build_pipeline(classifier, VariantSpec.parse(name), DecoderSettings(), threads=1)


def test_default_variant(monkeypatch: pytest.MonkeyPatch, classifier: Model) -> None:
    assert str(choose_default(load_model("null:1"))) == "full@null"
    found = []
    for hidden in ("", "openvino", "onnxruntime", "torch"):
        if hidden:
            monkeypatch.setitem(sys.modules, hidden, None)
        try:
            found.append(str(choose_default(classifier)))
        except BackendUnavailableError as error:
            found.append(str(error))
    assert found[:3] == ["full@openvino-fp32", "full@onnxruntime-fp32", "full@torch-fp32"]
    assert "no back end is installed: pip install openvino" in found[3]


def test_variant_set(classifier: Model) -> None:
    names = ["full@onnxruntime-fp32", "full@torch-fp32"]
    settings = DecoderSettings()
    variants = VariantSet(TaskConfig(variants=tuple(names)), classifier, settings)
    assert list(variants.pipelines) == names
    assert variants.default == names[0]
    settings.top_k = 2
    results = [run(pipeline, make_frame()) for pipeline in variants.pipelines.values()]
    for result in results:
        assert isinstance(result, Classification)
        assert len(result.scores) == 2
    one, other = variants.pipelines.values()
    assert one.processor is other.processor  # a switch between them moves no picture
    assert variants.memory_bytes == one.memory_bytes + other.memory_bytes
    variants.close()
    variants.close()


def test_variant_set_without_names_takes_the_default(classifier: Model) -> None:
    variants = VariantSet(TaskConfig(), classifier)
    assert list(variants.pipelines) == [str(choose_default(classifier))]


def test_variant_set_closes_what_it_built_when_one_fails(
    classifier: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(Pipeline, "close", lambda self: closed.append(str(self.spec)))
    with pytest.raises(BackendUnavailableError):
        VariantSet(TaskConfig(variants=("full@torch-fp32", "full@tvm-fp32")), classifier)
    assert closed == ["full@torch-fp32"]
    with pytest.raises(ConfigurationError, match="there twice"):
        VariantSet(TaskConfig(variants=("full@torch", "full@torch-fp32")), classifier)
