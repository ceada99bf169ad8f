# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Looks at what a network gives for real frames, and says once what cannot be right.

A head that fits the shapes of the outputs can still misread them: a network without its last
activation, boxes as corners that are centres and sizes, colours in another order. Nothing fails
then, and the results are wrong or none.
"""

from __future__ import annotations

import numpy as np

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import OWN_DECODER, DecoderSettings, Outputs
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.results import Classification, Detections, Result

FIRST_FRAMES = 100
"""Frames without any object after which that is said: 3 s at 30 Hz."""

LEAST_FRAMES = 10
"""Frames without any object after which a run that ends earlier says so."""

LEAST_BOXES = 20
"""Boxes that are seen before any are blamed: single ones in the bars of a letterbox are usual."""

WRONG_SHARE = 0.5
"""Share of the boxes without area or outside the picture from which on the reading is wrong."""

_CORNER = 1.5
"""Pixels of the input from its first corner, within which boxes from 0 to 1 lie."""

SURE_BOXES = 3
"""Boxes, all of them wrong, by which a run that ends early says so."""

THOROUGH_FRAMES, EVERY = 1000, 32
"""So many frames are looked at, which takes 0.05 ms each, then one of `EVERY`. Of these alone the
outputs are read for Inf: that takes as long as to look for NaN, which is done in every frame."""

SCORES, BOXES, INFINITY, NAN, NOTHING = "scores", "boxes", "infinity", "nan", "nothing"
LABELS = "labels"


class OutputCheck:
    """What is wrong with the outputs of a task.

    `observe` and `note_nan` are called on a worker, the rest by any thread.

    Attributes
    ----------
    findings : dict
        By cause, what was seen and the parameter to look at. That there was nothing at all is
        taken back by the first object.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.findings: dict[str, str] = {}
        self._news: list[str] = []
        self._frames = self._boxes = self._wrong = self._in_corner = 0
        self._threshold: float | None = None  # of a detector's last frame

    def observe(
        self, outputs: Outputs, result: Result, settings: DecoderSettings, frame: Frame
    ) -> None:
        """Look at a frame's outputs and what they were decoded to."""
        is_sample = self._frames % EVERY == 0
        self._frames += 1
        if is_sample and INFINITY not in self.findings:
            self._look_for_infinity(outputs)
        if self._frames > THOROUGH_FRAMES and not is_sample:
            return
        if isinstance(result, Detections):
            self._look_at_objects(result, settings, frame)
        elif isinstance(result, Classification):
            self._look_at_scores(result)

    def note_nan(self) -> None:
        """Note that an output holds NaN, which fails the frame."""
        self._find(NAN, f"the outputs hold NaN: {_PRECISION}")

    def take_news(self) -> list[str]:
        """Return what was found since the last call."""
        if not self._news:
            return []
        news, self._news = self._news, []
        return news

    def conclude(self) -> dict[str, str]:
        """Return the findings at the end of a run, which may be too short for `FIRST_FRAMES`."""
        if BOXES not in self.findings and SURE_BOXES <= self._boxes == self._wrong:
            return {**self.findings, BOXES: self._describe_boxes()}
        short = LEAST_FRAMES <= self._frames < FIRST_FRAMES
        if self._threshold is None or self._boxes or not short:
            return self.findings
        return {**self.findings, NOTHING: self._describe_nothing(self._threshold, self._frames)}

    def _find(self, cause: str, text: str) -> None:
        if cause not in self.findings:
            # A new one: others read it while this is written.
            self.findings = {**self.findings, cause: text}
            self._news = [*self._news, text]

    def _look_for_infinity(self, outputs: Outputs) -> None:
        for output in outputs:
            if output.dtype.kind == "f" and output.size and np.isposinf(output.max()):
                self._find(INFINITY, f"the outputs hold Inf: {_PRECISION}")

    def _look_at_objects(self, found: Detections, settings: DecoderSettings, frame: Frame) -> None:
        count = len(found) + found.rejected
        self._threshold = settings.confidence
        if not count:
            if self._frames == FIRST_FRAMES and not self._boxes:
                self._find(NOTHING, self._describe_nothing(settings.confidence, FIRST_FRAMES))
            return
        if NOTHING in self.findings:
            self.findings = {k: text for k, text in self.findings.items() if k != NOTHING}
        self._boxes += count
        if BOXES not in self.findings:
            low = np.maximum(found.boxes[:, :2], 0.0)
            high = np.minimum(found.boxes[:, 2:], (frame.width, frame.height))
            wrong = (high - low).min(axis=1, initial=np.inf) < 1.0
            # Boxes from 0 to 1 that are read as pixels: of a large picture an input's first pixel
            # is several.
            corner = np.divide((frame.width, frame.height), self._model.input_size[::-1]).max()
            in_corner = high.max(axis=1, initial=0.0) < _CORNER * corner
            self._in_corner += int(np.count_nonzero(in_corner))
            self._wrong += found.rejected + int(np.count_nonzero(wrong | in_corner))
            if self._boxes >= LEAST_BOXES and self._wrong > WRONG_SHARE * self._boxes:
                self._find(BOXES, self._describe_boxes())
        self._look_at_scores(found)

    def _look_at_scores(self, found: Detections | Classification) -> None:
        last, names = int(found.class_ids.max(initial=-1)), len(self._model.labels)
        if last >= names and LABELS not in self.findings:
            self._find(
                LABELS,
                f"class {last} was found, and `labels` are {names} names, 0 to {names - 1}: does "
                "the network count a background as class 0? All names would then be one off; give "
                "a name for each class, `background` first if there is one",
            )
        if len(found.scores) and SCORES not in self.findings:
            least, most = float(found.scores.min()), float(found.scores.max())
            # The margin is for half precision.
            if least < -1e-3 or most > 1.001:
                head = self._model.head.name
                self._find(
                    SCORES,
                    f"a score is {most if most > 1.001 else least:.4g}, not in [0, 1]: head "
                    f"{head!r} takes the outputs for probabilities; set `head` to the layout that "
                    "they have, or export the network with its last activation (sigmoid, softmax)",
                )

    def _describe_boxes(self) -> str:
        if self._in_corner > WRONG_SHARE * self._boxes:
            return (
                f"{self._in_corner} of {self._boxes} boxes lie in the first pixel of the input: "
                f"they seem to be written from 0 to 1, and head {self._model.head.name!r} reads "
                "them as pixels; export the network with boxes in pixels of its input, or set "
                f"`head` to {OWN_DECODER}"
            )
        return (
            f"{self._wrong} of {self._boxes} boxes have no area or lie outside the picture: are "
            f"they written otherwise than head {self._model.head.name!r} reads them (centre and "
            "size, corners, from 0 to 1, in pixels)? Set `head`; else look at `input_size` and "
            "`preprocessing.resize`"
        )

    def _describe_nothing(self, threshold: float, frames: int) -> str:
        return (
            f"nothing above confidence_threshold ({threshold:g}) in the first "
            f"{frames} frames: an empty scene, or wrong weights or preprocessing? Look at "
            "`preprocessing.color`, `preprocessing.scale`, `preprocessing.mean`, `head` and "
            f"`classes`; `jetson-dnn-rt inspect {self._model.source} --frames DIR` shows what the "
            "network finds under each plausible preprocessing"
        )


_PRECISION = (
    "does the precision of the variant overflow, or is a weight of the file broken? Run one in "
    "fp32 (`variants`), and look at `preprocessing.scale`"
)
