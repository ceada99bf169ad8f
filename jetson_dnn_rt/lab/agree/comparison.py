# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How well the results of a second run agree with those of a first one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.agree.matching import Frames, Matching, match_frames
from jetson_dnn_rt.lab.agree.result_files import FrameResult, TaskResults
from jetson_dnn_rt.models.heads.boxes import iou_matrix
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation
from jetson_dnn_rt.variants.measuring.agreement import METRICS, compare

MATCHED_IOU = 0.5
"""Overlap from which on two boxes of one class are the same object, as in mAP@0.5."""


@dataclass(frozen=True, eq=False)
class FramePair:
    """A frame of both runs; of B's boxes those in `matched` are A's too, and the other way."""

    a: FrameResult
    b: FrameResult
    difference: (
        float  # objects that only one has; of a mask the share of pixels; of classes 0 or 1
    )
    in_b: npt.NDArray[np.bool_] | None = None  # of A's boxes, whether B has them
    in_a: npt.NDArray[np.bool_] | None = None  # of B's boxes, whether A has them


@dataclass(eq=False)
class TaskAgreement:
    """Agreement of a task's results in B with those in A."""

    metric: str
    value: float | None  # None: unknown, with the reason
    unknown: str
    frames: int  # with a result in both
    matching: Matching
    only: tuple[dict[str, int], dict[str, int]]
    """Frames with a result in A, in B alone: by what became of them in the other."""
    without_result: int = 0  # frames that are in both, and came to a result in neither
    objects: tuple[int, int] = (0, 0)  # in A, in B, in the frames of both
    matched: int = 0
    worst: FramePair | None = field(default=None)  # None: the runs do not differ, or unknown

    @property
    def missing(self) -> int:
        """Objects of A that B lacks."""
        return self.objects[0] - self.matched

    @property
    def extra(self) -> int:
        """Objects of B that A lacks."""
        return self.objects[1] - self.matched

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        worst: dict[str, object] | None = None
        if self.worst is not None:
            frame, stream = self.worst.a, self.worst.a.stream
            worst = {"frame": frame.frame, "difference": round(self.worst.difference, 6)}
            worst |= {"file": frame.file} if frame.file else {}
            worst |= {"stream": stream} if stream else {}
        return {
            "metric": self.metric,
            "agreement": self.value,
            "unknown": self.unknown,
            "frames": self.frames,
            "matched_by": self.matching.by,
            "left_out": self.matching.left_out,
            "unchecked": self.matching.unchecked,
            "only_in_a": self.only[0],
            "only_in_b": self.only[1],
            "without_result": self.without_result,
            "objects_a": self.objects[0],
            "objects_b": self.objects[1],
            "matched": self.matched,
            "missing": self.missing,
            "extra": self.extra,
            "worst": worst,
        }


def compare_tasks(name: str, a: TaskResults, b: TaskResults) -> TaskAgreement:
    """Compare the results of a task; ConfigurationError when they cannot be compared."""
    if a.kind != b.kind:
        raise ConfigurationError(f"task {name}: {a.kind} in the one, {b.kind} in the other")
    same = match_frames(a, b)
    both = [(one, same.b[key]) for key, one in same.a.items() if key in same.b]
    pairs = [(one, other) for one, other in both if one.is_there and other.is_there]
    alone = _list_alone(same.a, same.b), _list_alone(same.b, same.a)
    found = TaskAgreement(METRICS[a.kind], None, "", len(pairs), same, alone)
    found.without_result = sum(not (one.is_there or other.is_there) for one, other in both)
    of_a, of_b = _list_results(one for one, _ in pairs), _list_results(x for _, x in pairs)
    if not pairs:
        found.unknown = same.nothing or "no frame has a result in both"
        if same.left_out:
            found.unknown = "no frame is the same picture in A and B"
    elif len(of_a) != len(pairs) or len(of_b) != len(pairs):
        found.unknown = "the files hold shares of classes, not masks: write both with --masks"
    else:
        try:
            measured = compare(a.kind, of_a, of_b, "A")
        except ValueError as error:  # masks of other sizes or names
            raise ConfigurationError(f"task {name}: {error}") from error
        found.value = measured.value
        if measured.value is None:
            found.unknown = f"{str(measured).removeprefix('unknown: ')} of A"
        compared = [_compare_frame(*pair) for pair in pairs]
        worst = max(compared, key=lambda one: one.difference)
        found.worst = worst if worst.difference > 0 else None
        if a.kind == "detection":
            in_b = [one.in_b for one in compared if one.in_b is not None]
            found.objects = sum(map(_count, of_a)), sum(map(_count, of_b))
            found.matched = sum(int(np.count_nonzero(mask)) for mask in in_b)
    return found


def _list_alone(one: Frames, other: Frames) -> dict[str, int]:
    """Frames with a result in `one` alone, by their outcome in the other."""
    fates: Counter[str] = Counter()
    for key, frame in one.items():
        there = other.get(key)
        if frame.is_there and not (there and there.is_there):
            fates["not there" if there is None else there.outcome.value] += 1
    return dict(fates)


def _list_results(frames: Iterable[FrameResult]) -> list[Result]:
    return [frame.result for frame in frames if frame.result is not None]


def _count(result: Result) -> int:
    return len(result) if isinstance(result, Detections) else 0


def _compare_frame(a: FrameResult, b: FrameResult) -> FramePair:
    first, second = a.result, b.result
    if isinstance(first, Detections) and isinstance(second, Detections):
        in_b, in_a = _match(first, second)
        alone = int(np.count_nonzero(~in_b)) + int(np.count_nonzero(~in_a))
        return FramePair(a, b, alone, in_b, in_a)
    if isinstance(first, Segmentation) and isinstance(second, Segmentation):
        # The share of pixels: of one frame the IoU says little, where it shows one class.
        pairs = zip(first.masks, second.masks, strict=True)
        return FramePair(a, b, max(float(np.mean(x.mask != y.mask)) for x, y in pairs))
    assert isinstance(first, Classification)
    assert isinstance(second, Classification)
    same = np.array_equal(first.class_ids[:1], second.class_ids[:1])
    return FramePair(a, b, float(not same))


def _match(a: Detections, b: Detections) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """For each box of A whether B has it, and the other way round.

    B's best box comes first, and takes the box of its class in A that it overlaps most.
    """
    in_b, in_a = np.zeros(len(a), np.bool_), np.zeros(len(b), np.bool_)
    if not len(a) or not len(b):
        return in_b, in_a
    overlaps = iou_matrix(b.boxes, a.boxes)
    overlaps[b.class_ids[:, None] != a.class_ids[None, :]] = -1.0
    for i in np.argsort(-b.scores, kind="stable"):
        best = int(np.argmax(overlaps[i]))
        if overlaps[i, best] >= MATCHED_IOU:
            in_a[i] = in_b[best] = True
            overlaps[:, best] = -1.0
    return in_b, in_a
