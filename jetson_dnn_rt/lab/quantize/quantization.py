# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Quantization of a model's network to INT8, with frames and without labels.

Ranges of values come from some of the frames. Others, which nothing is calibrated on, decide which
layers stay in fp32: the network in INT8 must agree with the same network in fp32 as much as was
asked for. It runs on the back end that it is for; one for TensorRT on ONNX Runtime, where the same
values are rounded in the same places, since an engine takes minutes to build.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from jetson_dnn_rt.backends.base import HostArrays
from jetson_dnn_rt.backends.registry import TENSORRT, create_runner, require_backend
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.quantize.quantizers import Images, find_quantizer
from jetson_dnn_rt.lab.quantize.search import search
from jetson_dnn_rt.models.graph.folded_norms import fold_norms
from jetson_dnn_rt.models.graph.quantized_part import (
    PRODUCTS,
    QuantizedPart,
    count_quantized,
    is_quantized,
)
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.files import first_line, import_package
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.variants.library.library import Entry, Library
from jetson_dnn_rt.variants.measuring.agreement import METRICS, compare
from jetson_dnn_rt.variants.measuring.sample_frames import count_held_out, prepare_inputs, spread
from jetson_dnn_rt.variants.measuring.store import load_graph
from jetson_dnn_rt.variants.network import IMAGE
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.quantized import MODEL_FILE, Quantization, quantized_key
from jetson_dnn_rt.variants.spec import VariantSpec

if TYPE_CHECKING:
    import onnx

logger = logging.getLogger(__name__)

DEFAULT_AGREEMENT = 0.98

_CALIBRATED = 100
"""Frames that ranges are taken from: more move them little."""
_OPSET = 13  # scales by channel
_RANKED = 8
"""Frames on which single layers are tried."""


def quantize(
    model: Model,
    spec: VariantSpec,
    *,
    frames: Sequence[Frame],
    source: str = "",
    agreement: float = DEFAULT_AGREEMENT,
    staged: bool = False,
    settings: DecoderSettings | None = None,
    library: Library,
    threads: int = 1,
    progress: Progress = ignore_progress,
) -> Entry:
    """Quantize a network, choose the layers that stay in fp32, and put it into the library.

    One that does not agree enough is stored as well, the best that was found, so that it is not
    tried again: see `Quantization.refused`.

    Parameters
    ----------
    frames : sequence of Frame
        At least two; the last ones judge (`sample_frames.count_held_out`).
    source : str
        Source of the frames, for the record.
    agreement : float
        With the same network in fp32, in [0, 1].
    staged : bool
        Whether it will be cut into stages, which needs a static graph; without one it is not.
    settings : DecoderSettings, optional
        Limits of the results that are compared.

    Raises
    ------
    ConfigurationError
        When there are fewer than two frames, or the model is quantized already.
    BackendUnavailableError
        When the back end or a library is missing.
    ModelError
        When the network cannot be quantized, or has no convolution and no matrix product.
    """
    if not 0.0 <= agreement <= 1.0:
        raise ConfigurationError(f"agreement must be in [0, 1]: {agreement}")
    if len(frames) < 2:
        raise ConfigurationError(f"quantizing needs two frames at least: {len(frames)}")
    require_backend(spec.backend, spec.precision)
    data, cuttable = _export(model, spec, library, staged)
    held = count_held_out(len(frames))
    learnt = [frames[index] for index in spread(len(frames) - held, _CALIBRATED)]
    images = prepare_inputs(model, learnt)
    work = _Work(model, spec, data, images, frames[-held:], settings, threads)
    if not work.layers:
        raise ModelError(f"{model.source} has no convolution and no matrix product to quantize")
    found = search(work.layers, work.judge, work.rank, asked=agreement, progress=progress)
    facts = Quantization(
        library=work.library,
        frames=source,
        calibrated_on=len(images),
        judged_on=held,
        asked=agreement,
        reached=found.agreement,
        metric=METRICS[model.kind],
        products=len(work.layers),
        kept=found.kept,
        tries=found.tries,
    )
    logger.info(
        "%s %s: agreement %.3f, %d of %d products stay in fp32",
        model.source, spec, found.agreement, len(found.kept), len(work.layers),
    )  # fmt: skip
    key = quantized_key(model, spec, library, cuttable=cuttable)
    if key is None:
        raise ModelError(f"{spec.decomposition} of {model.source} is not in the library")
    files = {MODEL_FILE: work.make(found.kept)}
    return library.store(key, files, facts.to_json(), model=model.source)


def _export(model: Model, spec: VariantSpec, library: Library, staged: bool) -> tuple[bytes, bool]:
    """The network in fp32, and whether its values have the names that stages are cut at."""
    if staged:
        try:
            graph = load_graph(model, spec.decomposition, library)
            return _export_graph(model, graph), True
        except (ModelError, BackendUnavailableError) as error:
            logger.warning("%s in int8 runs as one stage: %s", model.source, error)
    if spec.is_full:
        return model.onnx_model(), False
    return _export_graph(model, load_graph(model, spec.decomposition, library)), False


def _export_graph(model: Model, graph: Any) -> bytes:
    from jetson_dnn_rt.models.graph.splitting import Split

    if graph is None:
        raise ModelError(f"the decomposed network of {model.source} is not in the library")
    return Split(model.source, graph, model.input_size, ()).export_named()


class _Work:
    """One network, its quantizer, and the frames."""

    def __init__(
        self,
        model: Model,
        spec: VariantSpec,
        data: bytes,
        images: Images,
        judges: Sequence[Frame],
        settings: DecoderSettings | None,
        threads: int,
    ) -> None:
        import_package("onnx", "quantizing a network")
        self._quantizer = find_quantizer(spec.backend)
        self.library = self._quantizer.library
        self._model, self._images, self._judges = model, images, judges
        self._settings = settings or DecoderSettings()
        self._threads = threads
        # Its kernels in INT8 want other graphs than TensorRT: fp32 rounds in the same places.
        self._backend, self._precision = spec.backend, spec.precision
        if spec.backend in TENSORRT:
            self._backend, self._precision = "onnxruntime", "fp32"
        self._float = _read_network(model, data)
        self.layers = [n.name for n in self._float.graph.node if n.op_type in PRODUCTS]

    def make(self, kept: Collection[str]) -> bytes:
        """The network with these layers in fp32, calibrated on all images."""
        return self._quantizer.quantize(self._float, self._images, kept)

    def judge(self, kept: Collection[str]) -> float:
        """Its agreement with the network in fp32, on the frames that judge."""
        data = self.make(kept)
        self._check_quantized(data)
        results = self._run(self._precision, data)
        agreement = compare(self._model.kind, self._expected, results, "")
        if agreement.value is None:
            raise ConfigurationError(
                f"{self._model.source} cannot be quantized: how far int8 would agree is "
                f"{agreement}; fix: --frames with what the network finds"
            )
        return agreement.value

    def rank(self, group: Collection[str]) -> float:
        """Relative error of the outputs where only these layers are quantized; the largest."""
        kept = set(self.layers) - set(group)
        images = self._images[: min(_RANKED, len(self._images))]
        data = self._quantizer.quantize(self._float, images, kept)
        outputs = self._infer(self._precision, data, images)
        return max(map(_find_error, self._outputs[: len(images)], outputs))

    def _check_quantized(self, data: bytes) -> None:
        if not count_quantized(data, self._model.source):
            raise ModelError(
                f"{self.library} quantizes no convolution and no matrix product of "
                f"{self._model.source}"
            )

    @cached_property
    def _expected(self) -> list[Result]:
        return self._run("fp32", self._float.SerializeToString())

    @cached_property
    def _outputs(self) -> list[HostArrays]:
        images = self._images[: min(_RANKED, len(self._images))]
        return self._infer("fp32", self._float.SerializeToString(), images)

    def _infer(self, precision: str, data: bytes, images: Images) -> list[HostArrays]:
        runner = self._open(precision, data)
        try:
            return [tuple(o.copy() for o in runner.to_host(runner.run([i]))) for i in images]
        finally:
            runner.close()

    def _run(self, precision: str, data: bytes) -> list[Result]:
        """Results on the frames that judge."""
        runner = self._open(precision, data)
        try:
            buffer = runner.allocate_input()
            preprocessor = Preprocessor(self._model.preprocessing, buffer)
            decode = self._model.create_decoder()
            results = []
            for frame in self._judges:
                geometry = preprocessor.write(frame)
                outputs = runner.to_host(runner.run([buffer]))
                results.append(decode(outputs, geometry, self._settings))
            return results
        finally:
            runner.close()

    def _open(self, precision: str, data: bytes) -> Any:
        part = QuantizedPart(self._model.source, data, (self._model.input_shape,))
        return create_runner(part, self._backend, precision, threads=self._threads)


def _read_network(model: Model, data: bytes) -> onnx.ModelProto:
    """The network as quantizers take it: norms folded, every node named, ``image`` its input."""
    import onnx.version_converter

    network = onnx.load_model_from_string(fold_norms(data))
    opset = next((e.version for e in network.opset_import if e.domain in ("", "ai.onnx")), 0)
    if opset < _OPSET:
        try:
            network = onnx.version_converter.convert_version(network, _OPSET)
        except Exception as error:  # the converter raises RuntimeError and others
            raise ModelError(
                f"{model.source} is of opset {opset}, int8 needs {_OPSET}, and it cannot be "
                f"converted: {first_line(error)}; export it again"
            ) from error
    if is_quantized(network):
        raise ConfigurationError(
            f"{model.source} is quantized already, and runs as it is: use it in fp32, as "
            "full@onnxruntime-fp32 or full@openvino-fp32"
        )
    weights = {tensor.name for tensor in network.graph.initializer}
    (own,) = (value.name for value in network.graph.input if value.name not in weights)
    for value in network.graph.input:
        value.name = IMAGE if value.name == own else value.name
    names: set[str] = set()
    for index, node in enumerate(network.graph.node):
        node.input[:] = [IMAGE if name == own else name for name in node.input]
        if not node.name or node.name in names:
            node.name = f"{node.op_type}_{index}_of_{node.output[0]}"
        names.add(node.name)
    return network


def _find_error(expected: HostArrays, found: HostArrays) -> float:
    """Relative error of one run, of its worst output."""
    errors = []
    for one, other in zip(expected, found, strict=True):
        size = float(np.linalg.norm(one.astype(np.float64)))
        gap = one.shape == other.shape and float(np.linalg.norm(other.astype(np.float64) - one))
        errors.append(np.inf if gap is False else float(gap) / max(size, 1e-12))
    return max(errors)
