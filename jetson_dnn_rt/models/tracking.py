# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Objects that keep their number from frame to frame: ByteTrack of the library trackforge.

Zhang et al., "ByteTrack: Multi-Object Tracking by Associating Every Detection Box", 2022. Why this
library, and what it costs: docs/models.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Detections

# A step of the motion model takes about 40 µs with 100 objects; a gap must not cost a deadline.
_MOST_PERIODS = 100
# 1 - IoU of an object's predicted box and of the box that is the same object. Frames are skipped,
# so a second box may be far from a first one, whose motion nobody knows yet.
_MOST_DISTANCE = 0.9


class Tracker:
    """Numbers for the objects of one stream of frames; a number is never given twice.

    An object that is not seen keeps its number for `lost_ns`, at most `_MOST_PERIODS` periods. A
    box begins a track from `start_score` on, boxes of all scores continue one: ByteTrack's second
    pass for low scores takes only tracks of the period before, and a skipped frame leaves none.
    Classes play no part: a car that is a truck in one frame stays the same object.

    Raises
    ------
    ConfigurationError
        When trackforge cannot be imported.
    """

    def __init__(self, lost_ns: int, start_score: float) -> None:
        try:
            from trackforge import BYTETRACK
        except ImportError as error:
            raise ConfigurationError(
                f"tracker: bytetrack needs trackforge ({error}): pip install "
                "'jetson_dnn_rt[tracking]', or leave tracker empty"
            ) from error
        self._make = BYTETRACK  # here, so that no frame waits for the import
        self._lost_ns, self._start_score = lost_ns, start_score
        self._last_id = 0
        self._stamp_ns: int | None = None  # of the last frame; None = there is none
        self._sequence = 0
        self.start(1)

    def start(self, period_ns: int) -> None:
        """Forget all objects; frames come every `period_ns` > 0 from now on."""
        self._period_ns = period_ns
        self._forget()

    def update(self, detections: Detections, frame: Frame) -> Detections:
        """Return the boxes of the stream's next frame with their `track_ids`.

        Periods without a result since the last one, of frames that were skipped or came to
        nothing, pass for the objects too. Where the frame is older than the last one, or comes
        after more than `lost_ns`, all are forgotten.
        """
        periods = self._count_periods(frame)
        if not 0 < periods <= _MOST_PERIODS:
            self._forget()
            periods = 1
        self._stamp_ns, self._sequence = frame.stamp_ns, frame.sequence
        for _ in range(periods - 1):
            self._tracks.update([])
        boxes = detections.boxes.copy()
        boxes[:, 2:] -= boxes[:, :2]
        rows = zip(
            boxes.tolist(), detections.scores.tolist(), detections.class_ids.tolist(), strict=True
        )
        ids = np.full(len(detections), -1, np.int64)
        for number, _, _, _, row in self._tracks.update(list(rows)):
            if row is not None:
                ids[row] = self._first_id + number
        self._last_id = max(self._last_id, int(ids.max(initial=0)))
        return replace(detections, track_ids=ids)

    def _count_periods(self, frame: Frame) -> int:
        """Periods since the last frame, 0 where it has nothing to do with this one."""
        if self._stamp_ns is None:
            return 0
        elapsed_ns = frame.stamp_ns - self._stamp_ns
        if not elapsed_ns:  # a source that does not stamp its frames
            elapsed_ns = (frame.sequence - self._sequence) * self._period_ns
        if not 0 <= elapsed_ns <= self._lost_ns + self._period_ns:
            return 0
        return max(1, round(elapsed_ns / self._period_ns))

    def _forget(self) -> None:
        self._first_id = self._last_id
        self._stamp_ns = None
        self._tracks = self._make(
            track_thresh=0.0,  # see above: all boxes in one pass
            track_buffer=min(_MOST_PERIODS, self._lost_ns // self._period_ns),
            match_thresh=_MOST_DISTANCE,
            det_thresh=self._start_score,
        )
