# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What OpenVINO and ONNX Runtime made of a network, in the library: the next start reads it."""

from __future__ import annotations

from jetson_dnn_rt.backends.registry import require_backend
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.platforms.machine import hash_cpu_features
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.measuring.machine import describe_device, device_of
from jetson_dnn_rt.variants.spec import VariantSpec

FILE = "compiled.bin"
FORM = 3
"""Of what back ends store, and how they compile; raise it where either changes."""


class CompiledNetwork:
    """A `CompiledStore` in the library, for one part of a variant and a number of threads.

    The library checks who may write to it and the hash of what it reads, and warns where that
    fails, or nothing can be written; the back end compiles then.
    """

    def __init__(
        self, model: Model, spec: VariantSpec, part: Part, threads: int, library: Library
    ) -> None:
        self._library, self._source = library, model.source
        self._key = EntryKey(
            model.model_hash,
            part.graph_hash,
            spec.decomposition,
            "artefact",
            spec.backend,
            require_backend(spec.backend, spec.precision).version,
            describe_device(device_of(spec.backend)),
            spec.precision,
            tuple(part.input_shapes),
            f"compiled form={FORM} threads={threads} features={hash_cpu_features()}"
            f" inner={','.join(map(str, part.inner_outputs))}",
        )

    def load(self) -> bytes | None:
        """See `CompiledStore`."""
        entry = self._library.load(self._key)
        return None if entry is None else entry.files.get(FILE)

    def store(self, data: bytes) -> None:
        """See `CompiledStore`."""
        self._library.store(self._key, {FILE: data}, {}, model=self._source)
