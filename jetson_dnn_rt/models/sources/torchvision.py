# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Architectures of torchvision: detection, segmentation and classification.

The networks are fed by our preprocessing alone: the detectors' own resize and normalisation are
taken out and folded into it. Where torchvision resizes the shorter side and keeps the aspect
ratio, the input here has a fixed size into which the frame is letterboxed; `input_size` changes
it. Classifiers get the whole frame, stretched, instead of a crop of its middle.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import urlparse

from jetson_dnn_rt.config.suggestions import suggest
from jetson_dnn_rt.errors import ConfigurationError, ModelError, blaming
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.models.heads.labels import COCO_91, VOC_21, imagenet
from jetson_dnn_rt.models.input.preprocessing import Preprocessing, ResizeMode
from jetson_dnn_rt.models.model import Opened, SourceOptions
from jetson_dnn_rt.models.sources.files import hash_state, import_package, load_weights
from jetson_dnn_rt.models.sources.torch import TorchOrigin

if TYPE_CHECKING:
    import torch

_DIVISOR = 32  # what torchvision's detectors round the sides of their input up to


def open_source(name: str, options: SourceOptions) -> Opened:
    """Build an architecture with its weights.

    `ConfigurationError` where the name is unknown, `ModelError` where the weights are not
    available, are refused, or are of another network.
    """
    kind = find_kind(name)  # says how to install torchvision
    from jetson_dnn_rt.models.sources.torchvision_modules import wrap

    module = _build(name, kind, options)
    preprocessing = _find_preprocessing(name, kind, module, options.input_size)
    size = (preprocessing.height, preprocessing.width)
    model_hash = hash_state(module.state_dict(), f"torchvision:{name}")
    origin = TorchOrigin.of_module(f"torchvision:{name}", wrap(module, kind, size), size)
    return Opened(origin, model_hash, size, preprocessing, _find_labels(name, kind, options))


def find_kind(name: str) -> Kind:
    """The task of an architecture."""
    models = import_package("torchvision", f"torchvision:{name}").models
    kinds: dict[Kind, list[str]] = {
        "detection": models.list_models(module=models.detection),
        "segmentation": models.list_models(module=models.segmentation),
        "classification": models.list_models(module=models),
    }
    for kind, names in kinds.items():
        if name in names:
            return kind
    known = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())
    everything = [one for names in kinds.values() for one in names]
    hint = suggest(name, everything, "torchvision:{}")
    raise ConfigurationError(f"torchvision:{name} is unknown{hint or f', known are {known}'}")


def _build(name: str, kind: Kind, options: SourceOptions) -> torch.nn.Module:
    import torch
    from torchvision.models import get_model, get_model_weights

    pretrained = None
    keywords: dict[str, Any] = {} if kind == "classification" else {"weights_backbone": None}
    if options.weights == "DEFAULT":
        pretrained = get_model_weights(name).DEFAULT  # type: ignore[attr-defined]
        _check_cache(pretrained.url)
    elif options.labels is not None and not isinstance(options.labels, str):
        keywords["num_classes"] = len(options.labels)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # of initialisations that take long
        torch.manual_seed(0)  # `none` gives the same random weights each time
        module: torch.nn.Module = get_model(name, weights=pretrained, **keywords)
    if options.weights not in ("DEFAULT", "none"):
        with blaming("weights"):
            _fill(module, load_weights(Path(options.weights)), options.weights)
    return module.eval()


def _check_cache(url: str) -> None:
    """Fetch the weights into torchvision's cache if they are missing, and check the file.

    torchvision reads its cache with a full unpickler; so the file is first read once with
    the restricted one.
    """
    import torch

    cache = Path(torch.hub.get_dir()) / "checkpoints"
    path = cache / Path(urlparse(url).path).name
    if not path.exists():
        found = re.search(r"-([a-f0-9]{8,})\.", path.name)
        try:
            cache.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(
                url, str(path), found.group(1) if found else None, progress=False
            )
        except (URLError, OSError, RuntimeError) as error:
            raise ModelError(
                f"weights DEFAULT are not in the cache and cannot be fetched ({error}): put "
                f"{url} to {path}, or set weights to a file or to none"
            ) from error
    load_weights(path)


def _fill(module: torch.nn.Module, state: dict[str, torch.Tensor], path: str) -> None:
    """Load weights; parts that inference does not use may differ."""

    def matters(key: str) -> bool:
        return not key.startswith("aux_classifier.") and not key.endswith("num_batches_tracked")

    state = {key: value for key, value in state.items() if not key.startswith("aux_classifier.")}
    try:
        missing, unexpected = module.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise ModelError(
            f"weights {path} are of another network: {str(error).splitlines()[1].strip()}; "
            "where only the number of classes differs, give labels as a list of their names"
        ) from error
    if wrong := [key for key in (*missing, *unexpected) if matters(key)]:
        text = f"{len(wrong)} names differ, first {wrong[0]!r}"
        raise ModelError(f"weights {path} are of another network: {text}")


def _find_labels(name: str, kind: Kind, options: SourceOptions) -> tuple[str, ...] | None:
    """The names that belong to the weights; None where the user gives names."""
    if options.labels is not None and not isinstance(options.labels, str):
        return None
    if options.weights == "DEFAULT":
        from torchvision.models import get_model_weights

        meta = get_model_weights(name).DEFAULT.meta  # type: ignore[attr-defined]
        return tuple(meta["categories"])
    if kind == "detection":
        return ("no person", "person") if name.startswith("keypoint") else COCO_91
    return VOC_21 if kind == "segmentation" else imagenet()


def _find_preprocessing(
    name: str, kind: Kind, module: torch.nn.Module, input_size: tuple[int, int] | None
) -> Preprocessing:
    expected: Any
    if kind == "detection":
        expected = module.transform
        fixed = expected.fixed_size
        mode: ResizeMode = "stretch" if fixed else "letterbox_topleft"
        largest = (expected.min_size[-1], expected.max_size)
        sides = fixed[::-1] if fixed else [-(-s // _DIVISOR) * _DIVISOR for s in largest]
        mean, std = expected.image_mean, expected.image_std
    else:
        from torchvision.models import get_model_weights

        expected = get_model_weights(name).DEFAULT.transforms()  # type: ignore[attr-defined]
        mode = "letterbox_topleft" if kind == "segmentation" else "stretch"
        sizes = expected.resize_size if kind == "segmentation" else expected.crop_size
        sides = [int(sizes[-1])] * 2
        mean, std = expected.mean, expected.std
    factors: dict[str, Any] = {"mean": tuple(map(float, mean)), "std": tuple(map(float, std))}
    height, width = input_size or sides
    return Preprocessing(height, width, mode, **factors)
