"""Thresholds of a decoder, changed by a node while it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DecoderSettings:
    """What the decoder keeps; read anew for every frame.

    Attributes
    ----------
    confidence : float
        Smallest score of a box, in [0, 1].
    nms_iou : float
        Of two boxes of one class that overlap more than this the worse one goes, in [0, 1].
    max_detections : int
        At most so many boxes of a frame, the best ones, >= 1.
    top_k : int
        So many classes of a classification, the best ones, >= 1.
    """

    confidence: float = 0.3
    nms_iou: float = 0.45
    max_detections: int = 100
    top_k: int = 5

    def __setattr__(self, name: str, value: float) -> None:
        if name in ("confidence", "nms_iou") and not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must be in [0, 1]: {value}")
        if name in ("max_detections", "top_k") and value < 1:
            raise ValueError(f"{name} must be >= 1: {value}")
        object.__setattr__(self, name, value)
