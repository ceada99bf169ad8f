#!/usr/bin/env python3
# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Train the built-in detector and segmenter on procedural road scenes.

Renders a cache of scenes, then trains both networks side by side, each on half of the
cores, and writes ``builtin_detector.onnx`` and ``builtin_segmenter.onnx``.
On 2 cores with AVX-512 bf16 it takes about 35 minutes; an interrupted run continues from
its last checkpoint when it is started again with the same options. The result is
determined by the seed, the options and the machine's arithmetic.

    python tools/train_builtin.py [--only detector|segmenter] [--seed N] [--steps N]

With --width 0.7 they have fewer channels, half of the multiply-accumulates: small networks that
are trained like the shipped ones, for ``python -m benchmarks recovery --small DIR``.

The figures on held-out scenes come from ``python -m benchmarks accuracy``.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import onnx
import torch
from torch import nn
from torch.nn import functional

from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.demo.networks import Detector, Segmenter
from jetson_dnn_rt.demo.scenes import random_scene, training_seed

HEIGHT, WIDTH = builtin.INPUT_SIZE["detector"]
STRIDE = 8
IGNORE = 255  # mask value of the letterbox's padding
MOST_BOXES = 48
# Frame sizes of the training scenes and their shares: wide ones for 16:9 video.
SIZES = (((480, 640), 0.6), ((360, 640), 0.2), ((540, 960), 0.1), ((480, 848), 0.1))
STEPS = {"detector": 4200, "segmenter": 3400}
PEAK_RATE = 3e-3  # of AdamW
CACHE_VERSION = 1
OUTPUTS = {"detector": ["boxes", "scores"], "segmenter": ["logits"]}


# -- scenes ----------------------------------------------------------------------------


def render_scene(
    index: int, seed: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Return image [H, W, 3] RGB, mask [H, W], boxes [N, 5] (xyxy, class) as the nets see them."""
    number = training_seed(seed * 1_000_000 + index)
    rng = np.random.default_rng([number, 2])
    shares = [share for _, share in SIZES]
    size = SIZES[int(rng.choice(len(SIZES), p=shares))][0]
    scene = random_scene(number, size)
    ratio = min(HEIGHT / size[0], WIDTH / size[1])
    high, wide = round(size[0] * ratio), round(size[1] * ratio)
    method = cv2.INTER_LINEAR if rng.random() < 0.7 else cv2.INTER_AREA
    image = np.full((HEIGHT, WIDTH, 3), 114, np.uint8)
    image[:high, :wide] = cv2.resize(scene.image, (wide, high), interpolation=method)[..., ::-1]
    mask = np.full((HEIGHT, WIDTH), IGNORE, np.uint8)
    mask[:high, :wide] = cv2.resize(
        scene.mask, (wide, high), interpolation=cv2.INTER_NEAREST_EXACT
    )
    boxes = np.concatenate((scene.boxes * ratio, scene.class_ids[:, None]), 1, dtype=np.float32)
    return image, mask, boxes


@dataclass(frozen=True)
class Cache:
    """Rendered scenes in memory-mapped files, shared by both trainings."""

    images: npt.NDArray[np.uint8]  # [N, H, W, 3] RGB
    masks: npt.NDArray[np.uint8]  # [N, H, W]
    boxes: npt.NDArray[np.float32]  # [N, MOST_BOXES, 5], class -1 where there is none


def open_cache(folder: Path, count: int, mode: str) -> Cache:
    """Map the files of a cache of `count` scenes."""

    def map_file(name: str, kind: type[Any], *shape: int) -> Any:
        return np.lib.format.open_memmap(folder / f"{name}.npy", mode, kind, (count, *shape))

    return Cache(
        map_file("images", np.uint8, HEIGHT, WIDTH, 3),
        map_file("masks", np.uint8, HEIGHT, WIDTH),
        map_file("boxes", np.float32, MOST_BOXES, 5),
    )


def fill_cache(folder: Path, count: int, seed: int, part: int, parts: int) -> None:
    """Render every `parts`-th scene into the cache."""
    cv2.setNumThreads(1)
    cache = open_cache(folder, count, "r+")
    started = time.monotonic()
    for index in range(part, count, parts):
        image, mask, boxes = render_scene(index, seed)
        cache.images[index] = image
        cache.masks[index] = mask
        cache.boxes[index] = -1.0
        kept = boxes[:MOST_BOXES]
        cache.boxes[index, : len(kept)] = kept
        if part == 0 and index // parts % 200 == 199:
            left = (time.monotonic() - started) * (count - index) / index
            say(f"scenes: {index} of {count}, {left:.0f} s left")


def make_cache(work: Path, count: int, seed: int, cores: int) -> Path:
    """Render the scenes unless the folder already has them; return the folder."""
    folder = work / f"scenes-v{CACHE_VERSION}-{seed}-{count}"
    done = folder / "complete"
    if done.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    open_cache(folder, count, "w+")
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=fill_cache, args=(folder, count, seed, part, cores))
        for part in range(cores)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise SystemExit(f"rendering scenes failed with exit code {worker.exitcode}")
    done.touch()
    return folder


def take_batch(
    cache: Cache, chosen: npt.NDArray[np.int64], rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor, npt.NDArray[np.float32]]:
    """Return images [B, 3, H, W] in [0, 1], masks [B, H, W], boxes [B, M, 5], augmented.

    Augmentation: mirroring; gain, offset and channel gains; a scale of up to 1.25 about a
    random point, or a shrink to 0.75 onto padding.
    """
    images = np.empty((len(chosen), HEIGHT, WIDTH, 3), np.uint8)
    masks = np.empty((len(chosen), HEIGHT, WIDTH), np.uint8)
    boxes = cache.boxes[chosen].copy()
    for i, index in enumerate(chosen):
        image, mask = cache.images[index], cache.masks[index]
        present = boxes[i, :, 4] >= 0
        if rng.random() < 0.35:
            scale = rng.uniform(0.8, 1.3)
            dx = rng.uniform(min(0.0, WIDTH * (1 - scale)), max(0.0, WIDTH * (1 - scale)))
            dy = rng.uniform(min(0.0, HEIGHT * (1 - scale)), max(0.0, HEIGHT * (1 - scale)))
            matrix = np.array([[scale, 0, dx], [0, scale, dy]])
            place = (WIDTH, HEIGHT)
            image = cv2.warpAffine(image, matrix, place, borderValue=(114, 114, 114))
            mask = cv2.warpAffine(
                mask, matrix, place, flags=cv2.INTER_NEAREST, borderValue=(IGNORE,)
            )
            moved = boxes[i, :, :4] * scale + np.array([dx, dy, dx, dy], np.float32)
            whole = moved[:, 2:] - moved[:, :2]
            moved = np.clip(moved, 0, np.array([WIDTH, HEIGHT, WIDTH, HEIGHT], np.float32))
            sides = moved[:, 2:] - moved[:, :2]
            seen = (sides > 3.5).all(1) & (sides.prod(1) > 0.2 * whole.prod(1))
            boxes[i, :, :4] = moved
            boxes[i, present & ~seen, 4] = -1.0
        if rng.random() < 0.5:
            image, mask = image[:, ::-1], mask[:, ::-1]
            boxes[i, :, [0, 2]] = WIDTH - boxes[i, :, [2, 0]]
        images[i], masks[i] = image, mask
    batch = torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255.0)
    gain = torch.from_numpy(rng.uniform(0.75, 1.3, (len(chosen), 1, 1, 1)).astype(np.float32))
    tint = torch.from_numpy(rng.uniform(0.92, 1.08, (len(chosen), 3, 1, 1)).astype(np.float32))
    lift = torch.from_numpy(rng.uniform(-0.06, 0.06, (len(chosen), 1, 1, 1)).astype(np.float32))
    batch = batch.mul_(gain * tint).add_(lift).clamp_(0.0, 1.0)
    return batch.contiguous(memory_format=torch.channels_last), torch.from_numpy(masks), boxes


# -- losses ----------------------------------------------------------------------------


def detector_targets(
    boxes: npt.NDArray[np.float32], classes: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return heat [B, N, C], box targets [B, N, 4] and their weights [B, N].

    Each object is a Gaussian about its centre, scaled with its size; its box is learnt on the
    cells where the Gaussian is above 0.4. If objects share a cell, the smaller one gets it.
    """
    rows, columns = HEIGHT // STRIDE, WIDTH // STRIDE
    heat = np.zeros((len(boxes), classes, rows, columns), np.float32)
    target = np.zeros((len(boxes), rows, columns, 4), np.float32)
    weight = np.zeros((len(boxes), rows, columns), np.float32)
    y = np.arange(rows, dtype=np.float32)[:, None]
    x = np.arange(columns, dtype=np.float32)[None, :]
    for b, found in enumerate(boxes):
        found = found[found[:, 4] >= 0]
        areas = (found[:, 2] - found[:, 0]) * (found[:, 3] - found[:, 1])
        for x0, y0, x1, y1, kind in found[np.argsort(-areas, kind="stable")]:
            cx, cy = (x0 + x1) / 2 / STRIDE - 0.5, (y0 + y1) / 2 / STRIDE - 0.5
            sx = max(0.45, 0.13 * (x1 - x0) / STRIDE)
            sy = max(0.45, 0.13 * (y1 - y0) / STRIDE)
            bell = np.exp(-0.5 * (((x - cx) / sx) ** 2 + ((y - cy) / sy) ** 2))
            row = min(rows - 1, max(0, round(float(cy))))
            column = min(columns - 1, max(0, round(float(cx))))
            bell[row, column] = 1.0
            np.maximum(heat[b, int(kind)], bell, out=heat[b, int(kind)])
            own = bell > 0.4
            target[b][own] = (x0, y0, x1, y1)
            weight[b][own] = bell[own]
    count = rows * columns
    return (
        torch.from_numpy(heat.reshape(len(boxes), classes, count)).transpose(1, 2),
        torch.from_numpy(target.reshape(len(boxes), count, 4)),
        torch.from_numpy(weight.reshape(len(boxes), count)),
    )


def giou(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the generalised IoU (Rezatofighi et al., 2019) of paired boxes [K, 4]."""
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    shared = (high - low).clamp(min=0).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - shared
    hull = torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])
    enclosed = hull.prod(1)
    return shared / union - (enclosed - union) / enclosed


def detector_loss(
    network: Detector, images: torch.Tensor, boxes: npt.NDArray[np.float32]
) -> torch.Tensor:
    """Return CenterNet's focal loss of the scores plus the GIoU loss of the boxes."""
    with torch.autocast("cpu", torch.bfloat16):
        logits, sides = network.heads(images)
    logits, decoded = logits.float(), network.decode(sides.float())
    heat, target, weight = detector_targets(boxes, network.classes)
    peaks = heat == 1.0
    probability = torch.sigmoid(logits).clamp(1e-5, 1 - 1e-5)
    positive = torch.log(probability[peaks]) * (1 - probability[peaks]) ** 2
    negative = torch.log(1 - probability) * probability**2 * (1 - heat) ** 4
    focal = -(positive.sum() + negative[~peaks].sum()) / peaks.sum().clamp(min=1)
    own = weight > 0
    overlap = giou(decoded[own], target[own])
    return focal + 2.0 * ((1 - overlap) * weight[own]).sum() / weight[own].sum().clamp(min=1e-6)


def segmenter_loss(
    network: Segmenter,
    images: torch.Tensor,
    masks: torch.Tensor,
    weights: torch.Tensor,
    rng: np.random.Generator,
) -> torch.Tensor:
    """Return weighted cross-entropy plus the soft Dice loss over the batch.

    Each step uses one pixel of every 2x2 block, another one each time: on the CPU the softmax
    of all pixels would cost more than the network.
    """
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(images)
    dy, dx = rng.integers(0, 2, 2)
    classes = logits.shape[1]
    truth = masks[:, dy::2, dx::2].long().flatten()
    seen = truth != IGNORE
    truth = truth[seen]
    rows = logits[:, :, dy::2, dx::2].permute(0, 2, 3, 1).float().reshape(-1, classes)[seen]
    logarithms = rows.log_softmax(1)
    entropy = functional.nll_loss(logarithms, truth, weights)
    shares = logarithms.exp()
    shared = shares.new_zeros(classes).index_add(0, truth, shares.gather(1, truth[:, None])[:, 0])
    dice = (2 * shared + 1) / (shares.sum(0) + torch.bincount(truth, minlength=classes) + 1)
    loss: torch.Tensor = entropy + (1 - dice).mean()
    return loss


# -- training --------------------------------------------------------------------------


def say(text: str) -> None:
    """Print progress at once."""
    print(text, flush=True)


class Training:
    """State of the training of one network; see the options of the command."""

    def __init__(
        self, name: builtin.BuiltinName, cache: Cache, seed: int, steps: int, batch: int,
        width: float = 1.0,
    ) -> None:  # fmt: skip
        torch.manual_seed(seed)
        self.name, self.cache = name, cache
        self.seed, self.steps, self.batch, self.width = seed, steps, batch, width
        self.done = 0
        self.network = builtin.build(name, width).to(memory_format=torch.channels_last)
        kernels = [p for p in self.network.parameters() if p.ndim > 1]
        others = [p for p in self.network.parameters() if p.ndim <= 1]
        groups: list[dict[str, Any]] = [
            {"params": kernels, "weight_decay": 0.02},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.AdamW(groups, lr=PEAK_RATE)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimiser, self.rate)
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.997)  # type: ignore[no-untyped-call]
        self.average = torch.optim.swa_utils.AveragedModel(
            self.network, multi_avg_fn=average, use_buffers=True
        )
        # Rare classes weigh more, but far less than in proportion to their rarity.
        pixels = np.bincount(np.asarray(cache.masks[:500]).ravel(), minlength=IGNORE + 1)
        shares = np.maximum(1, pixels[: len(builtin.SEGMENTER_CLASSES)]) / pixels[:IGNORE].sum()
        weights = torch.tensor(shares**-0.35, dtype=torch.float32)
        self.class_weights = weights / weights.mean()

    def rate(self, step: int) -> float:
        """Return the share of the peak learning rate: a short warm-up, then half a cosine."""
        warm = min(1.0, (step + 1) / 200)
        return warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / self.steps)))

    def step(self) -> float:
        """Do one step and return its loss.

        All random choices depend on the seed and the step's number alone, so that a resumed
        run uses the same batches.
        """
        rng = np.random.default_rng([self.seed, self.done])
        scenes = len(self.cache.images)
        epoch, first = divmod(self.done * self.batch, scenes - self.batch)
        order = np.random.default_rng([self.seed, 7, epoch]).permutation(scenes)
        images, masks, boxes = take_batch(self.cache, order[first : first + self.batch], rng)
        self.network.train()
        if isinstance(self.network, Detector):
            loss = detector_loss(self.network, images, boxes)
        else:
            assert isinstance(self.network, Segmenter)
            loss = segmenter_loss(self.network, images, masks, self.class_weights, rng)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), 5.0)
        self.optimiser.step()
        self.schedule.step()
        self.average.update_parameters(self.network)
        self.done += 1
        return float(loss.detach())

    def save(self, path: Path) -> None:
        """Write all state; an interruption leaves the previous file intact."""
        half = path.with_suffix(".part")
        state = {name: part.state_dict() for name, part in self._parts().items()}
        torch.save({"done": self.done, **state}, half)
        half.replace(path)

    def restore(self, path: Path) -> None:
        """Read the state that `save` wrote."""
        state = torch.load(path, weights_only=True)
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.done = state["done"]

    def _parts(self) -> dict[str, Any]:
        names = ("network", "average", "optimiser", "schedule")
        return {name: getattr(self, name) for name in names}


def train(
    name: builtin.BuiltinName, folder: Path, options: argparse.Namespace, threads: int
) -> None:
    """Train one network from its last checkpoint on and write its weights."""
    torch.set_num_threads(threads)
    cv2.setNumThreads(1)
    steps = options.steps or STEPS[name]
    cache = open_cache(folder, options.scenes, "r")
    training = Training(name, cache, options.seed, steps, options.batch, options.width)
    narrow = "" if options.width == 1.0 else f"-{options.width:g}"
    checkpoint = folder / f"{name}-{steps}-{options.batch}{narrow}.pt"
    if checkpoint.exists():
        training.restore(checkpoint)
        say(f"{name}: resumes at step {training.done}")
    first, started, smoothed = training.done, time.monotonic(), None
    while training.done < steps:
        loss = training.step()
        if not math.isfinite(loss):
            raise SystemExit(f"{name}: the loss is {loss} at step {training.done}")
        smoothed = loss if smoothed is None else 0.98 * smoothed + 0.02 * loss
        if training.done % 50 == 0:
            spent = time.monotonic() - started
            left = spent / (training.done - first) * (steps - training.done) / 60
            so_far = f"{name}: step {training.done} of {steps}"
            say(f"{so_far}, loss {smoothed:.4f}, {left:.1f} min left")
        if training.done % 200 == 0 or training.done == steps:
            training.save(checkpoint)
    write_weights(training, options.output)


def write_weights(training: Training, folder: Path) -> None:
    """Write the network with the averaged weights as ONNX."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "model": f"builtin:{training.name}",
        "labels": json.dumps(builtin.labels(training.name)),
        "seed": str(training.seed),
        "scenes": str(len(training.cache.images)),
        "steps": str(training.done),
        "batch": str(training.batch),
    }
    if training.width != 1.0:
        about[builtin.WIDTH] = str(training.width)
    path = folder / builtin.weights_path(training.name).name
    write_onnx(training.name, training.average.module, path, about)


def write_onnx(
    name: builtin.BuiltinName, network: nn.Module, path: Path, about: dict[str, str]
) -> None:
    """Export a network so that `builtin.load` finds all of its weights again, bit for bit.

    Batch norms are not folded: decomposition and training need them, and back ends fold them when
    they load the file.
    """
    state = network.state_dict()
    (batches,) = {int(value) for key, value in state.items() if key.endswith(builtin.BATCHES)}
    data = io.BytesIO()
    export: Any = torch.onnx.export  # its types allow a path only
    with warnings.catch_warnings():
        # Of its age (the newer exporter renames weights), and that it folds constants: what it
        # made of the weights is compared below.
        warnings.simplefilter("ignore")
        export(
            network.eval(),
            (torch.full((1, 3, *builtin.INPUT_SIZE[name]), 0.45),),
            data,
            input_names=["image"],
            output_names=OUTPUTS[name],
            opset_version=17,
            dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,
        )
    model = onnx.load_model_from_string(data.getvalue())
    about = {**about, builtin.BATCHES: str(batches)}
    onnx.helper.set_model_props(model, about)
    half = path.with_suffix(".part")
    half.write_bytes(model.SerializeToString())
    loaded = builtin.load(name, half).state_dict()
    if not all(torch.equal(value, loaded[key]) for key, value in state.items()):
        raise SystemExit(f"{name}: the weights read from {half} are not those that were written")
    half.replace(path)


def main(argv: list[str] | None = None) -> int:
    """Render the scenes, train, write the weights; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", choices=builtin.NAMES, help="train this network alone")
    parser.add_argument("--seed", type=int, default=0, help="seed of scenes, weights and order")
    parser.add_argument("--scenes", type=int, default=10_000, help="scenes to render")
    parser.add_argument("--steps", type=int, help=f"training steps, by default {STEPS}")
    parser.add_argument("--batch", type=int, default=16, help="scenes in a step")
    about = "share of the channels of hidden layers; other than 1 needs --output"
    parser.add_argument("--width", type=float, default=1.0, help=about)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    work = Path(tempfile.gettempdir()) / "jetson_dnn_rt-training"
    about = "folder of the scene cache (3.1 GB) and the checkpoints"
    parser.add_argument("--work", type=Path, default=work, help=about)
    output = builtin.weights_path("detector").parent
    parser.add_argument("--output", type=Path, default=output, help="folder")
    options = parser.parse_args(argv)
    if not 0 < options.batch < options.scenes:
        parser.error(f"--batch must be between 1 and --scenes, got {options.batch}")
    if not 0.0 < options.width <= builtin.MOST_WIDTH:  # NaN is not either
        most = f"{builtin.MOST_WIDTH:g}"
        parser.error(f"--width must be above 0 and at most {most}, got {options.width:g}")
    if options.width != 1.0 and options.output == output:
        parser.error("--width would replace the shipped networks: give another --output")
    folder = make_cache(options.work, options.scenes, options.seed, max(1, options.cores))
    names = [options.only] if options.only else list(builtin.NAMES)
    # One process per network: two single-threaded steps side by side get more done than
    # two-threaded steps one after the other (2 cores: 8.1 against 6.5 steps a second).
    threads = max(1, options.cores // len(names))
    context = multiprocessing.get_context("spawn")
    jobs = [context.Process(target=train, args=(name, folder, options, threads)) for name in names]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    return 1 if any(job.exitcode for job in jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
