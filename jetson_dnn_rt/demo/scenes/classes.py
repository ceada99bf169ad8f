"""What can be seen in a scene, and from which size on.

Boxes enclose the pixels of an object that are really visible. A sign's box is its plate,
without the post; a cyclist's includes the bicycle. In the masks a cyclist with his bicycle
is ``person``; cars and trucks are ``vehicle``; grass, hedges, trees and distant woods are
``vegetation``; the kerb is ``sidewalk``; buildings, signs and posts are ``background``, the
class of everything else.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "DETECTOR_CLASSES",
    "LEAST_VISIBLE",
    "MASK_OF",
    "SEGMENTER_CLASSES",
    "SMALLEST_BOX_PX",
    "SMALLEST_PX",
    "TYPICAL_HEIGHT_M",
    "Kind",
    "Surface",
]


class Kind(IntEnum):
    """Class indices of the detector."""

    CAR = 0
    TRUCK = 1
    PEDESTRIAN = 2
    CYCLIST = 3
    SIGN = 4


class Surface(IntEnum):
    """Class indices of the segmenter."""

    BACKGROUND = 0
    ROAD = 1
    LANE_MARKING = 2
    SIDEWALK = 3
    SKY = 4
    VEGETATION = 5
    VEHICLE = 6
    PERSON = 7


DETECTOR_CLASSES = tuple(kind.name.lower() for kind in Kind)
SEGMENTER_CLASSES = tuple(surface.name.lower() for surface in Surface)

MASK_OF = {
    Kind.CAR: Surface.VEHICLE,
    Kind.TRUCK: Surface.VEHICLE,
    Kind.PEDESTRIAN: Surface.PERSON,
    Kind.CYCLIST: Surface.PERSON,
    Kind.SIGN: Surface.BACKGROUND,
}
SMALLEST_PX = {
    Kind.CAR: 18.0,
    Kind.TRUCK: 26.0,
    Kind.PEDESTRIAN: 38.0,
    Kind.CYCLIST: 38.0,
    Kind.SIGN: 15.0,
}
"""Height, in pixels of a 640-wide frame, below which a thing is not painted at all: what is
painted must be recognisable, or the ground truth would ask for guesses."""
TYPICAL_HEIGHT_M = {
    Kind.CAR: 1.5,
    Kind.TRUCK: 3.3,
    Kind.PEDESTRIAN: 1.7,
    Kind.CYCLIST: 1.75,
    Kind.SIGN: 0.9,
}
SMALLEST_BOX_PX = 8.0
"""Boxes with a shorter side, in pixels of a 640-wide frame, are left out of the truth."""
LEAST_VISIBLE = 0.3
"""Boxes of which a smaller share is visible are left out of the truth."""
