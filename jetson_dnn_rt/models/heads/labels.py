# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Names of classes: the usual data sets', a file's, or ``class_N``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from jetson_dnn_rt.config.suggestions import suggest
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.safety import small_files

_MAX_FILE_BYTES = 1 << 20
_SETS = ("coco80", "coco91", "voc21", "imagenet")
_FILE_SUFFIXES = (".csv", ".json", ".labels", ".list", ".names", ".txt", ".yaml", ".yml")
"""By which one text is taken for a file of names that should be there."""

BACKGROUND = "background"
TWO = (BACKGROUND, "foreground")
IGNORE_INDEX = 255
"""Number in a true mask of pixels without a class, by convention."""
_UNLABELLED = frozenset(("unlabelled", "unlabeled", "void", "ignore"))

# torchvision's detectors count as COCO's annotations do: 0 is the background, and 10 numbers of
# the 90 were never used.
COCO_91 = tuple(
    """__background__|person|bicycle|car|motorcycle|airplane|bus|train|truck|boat|traffic light
fire hydrant|N/A|stop sign|parking meter|bench|bird|cat|dog|horse|sheep|cow|elephant|bear|zebra
giraffe|N/A|backpack|umbrella|N/A|N/A|handbag|tie|suitcase|frisbee|skis|snowboard|sports ball
kite|baseball bat|baseball glove|skateboard|surfboard|tennis racket|bottle|N/A|wine glass|cup
fork|knife|spoon|bowl|banana|apple|sandwich|orange|broccoli|carrot|hot dog|pizza|donut|cake|chair
couch|potted plant|bed|N/A|dining table|N/A|N/A|toilet|N/A|tv|laptop|mouse|remote|keyboard
cell phone|microwave|oven|toaster|sink|refrigerator|N/A|book|clock|vase|scissors|teddy bear
hair drier|toothbrush""".replace("\n", "|").split("|")
)
COCO_80 = tuple(name for name in COCO_91 if name not in ("__background__", "N/A"))
VOC_21 = tuple(
    """__background__|aeroplane|bicycle|bird|boat|bottle|bus|car|cat|chair|cow|diningtable|dog
horse|motorbike|person|pottedplant|sheep|sofa|train|tvmonitor""".replace("\n", "|").split("|")
)


def imagenet() -> tuple[str, ...]:
    """The 1000 classes of ImageNet, from torchvision's description of its weights."""
    from torchvision.models import ResNet18_Weights

    return tuple(ResNet18_Weights.IMAGENET1K_V1.meta["categories"])


def read_labels(path: Path) -> tuple[str, ...]:
    """Read names from a file; `ModelError` where it is missing, too large, or holds no names.

    ``.yaml``/``.yml`` holds a list, a mapping from index to name, or either under ``names`` (as
    data set files of Ultralytics have it), anything else one name per line.
    """
    try:
        text = small_files.read_text(path, _MAX_FILE_BYTES)
    except OSError as error:
        raise ModelError(
            f"labels: cannot read {path}: {error.strerror}; give a file with a name per line, "
            f"or one of {', '.join(_SETS)}"
        ) from error
    except UnicodeDecodeError as error:
        raise ModelError(f"labels: cannot read {path}: {error}; save it as UTF-8") from error
    if path.suffix not in (".yaml", ".yml"):
        names = tuple(line.strip() for line in text.splitlines() if line.strip())
    else:
        names = _names_of_yaml(path, text)
    if not names:
        raise ModelError(f"labels: {path} holds no names")
    return names


def _names_of_yaml(path: Path, text: str) -> tuple[str, ...]:
    import yaml

    from jetson_dnn_rt.safety import yaml_files

    try:
        data = yaml_files.parse(text, yaml_files.TextLoader)
    except yaml.YAMLError as error:
        raise ModelError(f"labels: {path} is not YAML: {error}") from error
    if isinstance(data, dict) and "names" in data:
        data = data["names"]
    if isinstance(data, dict):
        numbered = {int(key) if str(key).isdecimal() else key: data[key] for key in data}
        return names_of_mapping(numbered)
    if isinstance(data, list):
        return tuple(_text_of(name) for name in data)
    raise ModelError(f"labels: {path} holds neither a list nor a mapping of names")


def names_of_mapping(data: dict[object, object]) -> tuple[str, ...]:
    """Order the names of ``{index: name}``; a gap is filled with ``class_N``."""
    if not all(type(key) is int and 0 <= key < 100_000 for key in data):
        raise ModelError("labels: the keys of the mapping must be indices from 0")
    by_index = {int(str(key)): _text_of(name) for key, name in data.items()}
    return tuple(by_index.get(i, f"class_{i}") for i in range(max(by_index, default=-1) + 1))


def _text_of(name: object) -> str:
    if isinstance(name, list | tuple | dict | set):
        raise ModelError("labels: a name must be a text, not a list or a mapping")
    return str(name)


def resolve_labels(
    labels: str | Sequence[str] | None, embedded: Sequence[str] | None, kind: str, classes: int
) -> tuple[str, ...]:
    """Choose the names: the user's, else the model's own, else the usual ones for `classes`.

    `labels` are the names, or one text: ``coco80``, ``coco91``, ``voc21``, ``imagenet``, a file's
    path, or the name of the only class; `embedded` are those in the model file. `ModelError` where
    the user gives fewer names than the model has classes.
    """
    if isinstance(labels, str):
        labels = (labels,)
    if not labels:
        if embedded and len(embedded) >= classes:
            return tuple(embedded)
        usual = {("detection", 80): COCO_80, ("detection", 91): COCO_91}
        usual["segmentation", 21] = VOC_21
        usual["segmentation", 2] = TWO
        if (kind, classes) == ("classification", 1000):
            return imagenet()
        return usual.get((kind, classes)) or tuple(f"class_{i}" for i in range(classes))
    names = tuple(labels) if len(labels) > 1 else _read_one(labels[0], classes)
    if len(names) < classes:
        raise ModelError(f"labels: {len(names)} names for a model of {classes} classes")
    return names


def _read_one(text: str, classes: int) -> tuple[str, ...]:
    """The names that one text stands for, of a model of so many classes, 0 = not known."""
    if text == "imagenet":
        return imagenet()
    sets = {"coco80": COCO_80, "coco91": COCO_91, "voc21": VOC_21}
    if text in sets:
        return sets[text]
    path = Path(text).expanduser()
    if "/" in text or path.suffix.lower() in _FILE_SUFFIXES or path.is_file():
        return read_labels(path)
    hint = suggest(text, _SETS)
    if classes > 1 or hint:
        of = f"a model of {classes} classes" if classes > 1 else "the only class"
        raise ModelError(
            f"labels: {text!r} is neither a file nor one of {', '.join(_SETS)}{hint or ';'} as "
            f"names for {of} give a list, or a file with a name per line"
        )
    return (text,)


def name_class(labels: Sequence[str], class_id: int) -> str:
    """Name of a class; ``class_N`` where there is no label for it."""
    return labels[class_id] if 0 <= class_id < len(labels) else f"class_{class_id}"


def name_mask_classes(labels: Sequence[str], mask: str, classes: int) -> tuple[str, ...]:
    """Choose the names for the mask of that name and so many classes, of a network with several.

    They are the model's `labels`. Where nobody has given any, those of a mask of two classes are
    ``background`` and its own name.
    """
    unnamed = tuple(name_class((), class_id) for class_id in range(2))
    if mask and classes == 2 and tuple(labels[:2]) in (unnamed, TWO):
        return BACKGROUND, mask
    return tuple(labels[:classes] if classes else labels)


def find_background(labels: Sequence[str]) -> frozenset[int]:
    """Find the classes of a mask that are nothing: not painted over a picture.

    They are called background or unlabelled; of two classes it is the first, unless one is called
    so.
    """
    named = _find_named(labels, {BACKGROUND, *_UNLABELLED})
    return frozenset(named or ({0} if len(labels) == 2 else ()))


def find_unlabelled(labels: Sequence[str]) -> frozenset[int]:
    """Find the numbers of a true mask that say nothing of a pixel.

    They are 255, unless that is a class of the network, and classes that are called so.
    """
    named = _find_named(labels, _UNLABELLED)
    return frozenset(named if len(labels) > IGNORE_INDEX else {*named, IGNORE_INDEX})


def _find_named(labels: Sequence[str], names: Collection[str]) -> set[int]:
    return {i for i, label in enumerate(labels) if label.strip("_ ").lower() in names}
