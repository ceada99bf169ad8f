"""YOLOv5 out of a local checkout of its hub repository, as an ONNX file."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from pathlib import Path

import torch

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.models.sources.torch import export_onnx

ENTRY, SIDE = "yolov5s", 640


def export_yolov5(checkout: Path, folder: Path, *, side: int = SIDE) -> Path:
    """Make the small YOLOv5 of a checkout, with random weights, and export it into a folder.

    The checkout's own code is run: it must be one that you trust. `side` of the input is in
    pixels, a multiple of 32.

    `ConfigurationError` when it is no such checkout; `ModelError` when its code fails, or the
    network cannot be exported.
    """
    hub = checkout / "hubconf.py"
    if not hub.is_file():
        raise ConfigurationError(f"--yolov5 {checkout}: a checkout has a file hubconf.py")
    module = _load(checkout, hub)
    path = folder / f"{ENTRY}.onnx"
    path.write_bytes(export_onnx(_First(module).eval(), ((1, 3, side, side),), ENTRY))
    return path


def _load(checkout: Path, hub: Path) -> torch.nn.Module:
    spec = importlib.util.spec_from_file_location("hubconf", hub)
    assert spec is not None
    assert spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    # They would install what they miss, into the environment of this package.
    os.environ["YOLOv5_AUTOINSTALL"] = "false"  # noqa: SIM112  as it is spelt there
    os.environ["YOLO_AUTOINSTALL"] = "false"
    sys.path.insert(0, str(checkout))  # its modules import each other by their names
    try:
        with contextlib.redirect_stdout(sys.stderr):  # ours is for the result
            spec.loader.exec_module(code)
            module = getattr(code, ENTRY)(pretrained=False, autoshape=False, device="cpu")
        made: torch.nn.Module = module.float().eval()
        return made
    except Exception as error:  # foreign code may raise anything
        raise ModelError(
            f"--yolov5 {checkout}: {ENTRY} cannot be made ({type(error).__name__}: {error}): "
            "install what its requirements.txt names, or give an ONNX export"
        ) from error
    finally:
        sys.path.remove(str(checkout))


class _First(torch.nn.Module):
    """The first output of a network: YOLOv5 returns its feature maps behind the boxes."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        outputs = self.network(image)
        first: torch.Tensor = outputs if torch.is_tensor(outputs) else outputs[0]
        return first
