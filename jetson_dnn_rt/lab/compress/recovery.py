# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Recovery without labels: a decomposed network learns from the full one, from frames alone.

The loss is the mean squared error of each value relative to the value's own spread: of the
network's results and, at first and with less weight, of its layers' outputs (see `distillation`);
for a detector also the error of the boxes that the full one is confident of. Random choices depend
on the seed and the number of the step alone, so a run that continues from its checkpoint is
bit-identical to an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import fx

from jetson_dnn_rt.backends.torch import supports_bf16
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.lab.compress.distillation import (
    VIEWS,
    Targets,
    can_batch,
    expose,
    find_targets,
    measure_boxes,
    measure_spreads,
    vary,
)
from jetson_dnn_rt.models.graph.tracing import output_names
from jetson_dnn_rt.variants.measuring.sample_frames import count_held_out
from jetson_dnn_rt.variants.progress import Progress, ignore_progress

logger = logging.getLogger(__name__)

_PHASE = "recovery"
_PROBES = 2
_SPREAD_FRAMES = 16
_FINGERPRINT = "fingerprint"
_FIGURES = ("done", "best_step", "loss_before", "best_loss")

State = dict[str, torch.Tensor]
Values = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class RecoverySettings:
    """Settings of the training of a decomposed network."""

    learning_rate: float = 1e-3  # of AdamW: rises over the first twentieth, falls as a cosine
    weight_decay: float = 1e-4  # of AdamW
    batch: int = 8  # frames in a step
    # Initial weight of the layers' values beside that of the results; it falls to 0 until half of
    # the steps are done. They show the way; kept up, they block any other way to the same results.
    between: float = 0.1
    localisation: float = 1.0  # weight of the error of a detector's boxes
    evaluations: int = 20  # on the held-out frames; each writes the checkpoint
    # Whether steps are computed in bf16 (weights, loss and evaluations stay fp32); None: where the
    # CPU has instructions for it.
    half: bool | None = None


@dataclass(frozen=True)
class RecoveryReport:
    """Result of a recovery."""

    steps: int
    resumed_from: int  # step of the checkpoint; 0 without one
    best_step: int  # whose weights were kept; 0 = the initial ones
    loss_before: float  # on the held-out frames
    loss_after: float
    frames: int  # learnt from
    held_out: int  # frames of the evaluations
    seconds: float  # of this run


def recover(
    full: fx.GraphModule,
    reduced: fx.GraphModule,
    inputs: Sequence[npt.NDArray[np.float32]],
    *,
    steps: int,
    head: str = "",
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: Progress = ignore_progress,
    settings: RecoverySettings | None = None,
) -> RecoveryReport:
    """Train a decomposed network to match the full one.

    Parameters
    ----------
    full : torch.fx.GraphModule
        The teacher, batch norms folded.
    reduced : torch.fx.GraphModule
        The same graph with layers replaced; changed in place, to the state that was best on the
        held-out frames. That may be the initial state.
    inputs : sequence of ndarray of float32, [1, 3, H, W]
        Frames as the network takes them, at least two.
    head : str, optional
        Layout of the outputs, as in `models.heads.registry`: the boxes of a detector then count
        where the full network is confident of them.
    seed : int
        Decides which frames a step sees and how they are varied.
    checkpoint : Path, optional
        File to write to, and to continue from if it belongs to the same run.

    Raises
    ------
    ModelError
        If the networks share no value, or the loss is not finite.
    """
    if steps < 1 or len(inputs) < 2:
        raise ConfigurationError(
            f"recovery needs a step and two frames at least: {steps} steps, {len(inputs)} frames"
        )
    begin = time.monotonic()
    run = _Run(full, reduced, inputs, steps, head, seed, settings or RecoverySettings())
    state = load_checkpoint(checkpoint, run.fingerprint) if checkpoint else None
    if state is not None:
        run.restore(state)
        logger.info("recovery continues at step %d of %d in %s", run.done, steps, checkpoint)
    else:
        run.judge()
    resumed_from = run.done
    progress(_PHASE, run.done, steps)
    while run.done < steps:
        run.step()
        if run.done % run.period == 0 or run.done == steps:
            run.judge()
            if checkpoint:
                save_checkpoint(checkpoint, run.fingerprint, run.state())
        progress(_PHASE, run.done, steps)
    run.finish()
    return RecoveryReport(
        steps,
        resumed_from,
        run.best_step,
        run.loss_before,
        run.best_loss,
        len(run.learnt),
        len(run.judges),
        time.monotonic() - begin,
    )


class _Run:
    """One run of recovery: its networks, its optimiser, and the best state so far."""

    def __init__(
        self,
        full: fx.GraphModule,
        reduced: fx.GraphModule,
        inputs: Sequence[npt.NDArray[np.float32]],
        steps: int,
        head: str,
        seed: int,
        settings: RecoverySettings,
    ) -> None:
        self.settings, self.steps, self.head, self.seed = settings, steps, head, seed
        self.period = max(1, steps // settings.evaluations)
        judges = count_held_out(len(inputs))
        self.learnt, self.judges = inputs[:-judges], inputs[-judges:]
        self.done, self.best_step = 0, 0
        self.loss_before = self.best_loss = math.inf
        self._reduced = reduced.eval()
        probes = [torch.from_numpy(image) for image in self.learnt[:_PROBES]]
        probes = probes if len(probes) > 1 else [*probes, torch.from_numpy(self.judges[0])]
        targets = find_targets(full, reduced, probes)
        self._teacher = expose(full, targets.names).eval()
        self._student = expose(reduced, targets.names).eval()
        # Dropout stays off and normalisations that could not be folded keep their statistics.
        self._batched = can_batch(self._teacher, probes) and can_batch(self._student, probes)
        self._parameters = [p for p in self._student.parameters() if p.is_floating_point()]
        for parameter in self._parameters:
            parameter.requires_grad_(True)
        self._half = supports_bf16() if settings.half is None else settings.half
        self._weights, self._guides = self._weigh(targets)
        returned = output_names(full)
        whole = targets.final[: len(returned)] == returned
        self._view = VIEWS.get(head) if whole else None
        self._returned = len(returned)
        self._optimiser = torch.optim.AdamW(
            self._parameters, settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.fingerprint = self._make_fingerprint(full)
        self._best: State = copy.deepcopy(reduced.state_dict())

    def _weigh(self, targets: Targets) -> tuple[list[float], list[float]]:
        """Weights of the squared errors of final and intermediate values, by their spreads."""
        with torch.no_grad():
            some = self.learnt[:_SPREAD_FRAMES]
            spreads = measure_spreads(self._teacher(torch.from_numpy(image)) for image in some)
        count = len(targets.final)
        final = [1.0 / (count * spread) for spread in spreads[:count]]
        between = [1.0 / (len(targets.between) * spread) for spread in spreads[count:]]
        # If no returned value can be compared, the intermediate ones must do.
        return (final, between) if final else (between, [])

    def _make_fingerprint(self, full: fx.GraphModule) -> str:
        """Hash of everything that determines the result; a checkpoint must match it."""
        digest = hashlib.sha256()
        settings = sorted({**asdict(self.settings), "half": self._half}.items())
        about = (self.steps, self.head, self.seed, settings, torch.__version__)
        digest.update(repr(about).encode())
        for network in (full, self._reduced):
            for name, value in network.state_dict().items():
                digest.update(f"{name} {tuple(value.shape)}".encode())
                digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        for images in (self.learnt, self.judges):
            digest.update(str(len(images)).encode())
            for image in images:
                digest.update(np.ascontiguousarray(image).tobytes())
        return digest.hexdigest()

    def step(self) -> None:
        """Train on one batch."""
        settings = self.settings
        rng = np.random.default_rng([self.seed, self.done])
        count = min(settings.batch, len(self.learnt))
        chosen = rng.choice(len(self.learnt), count, replace=False)
        images = torch.from_numpy(np.concatenate([self.learnt[i] for i in chosen]))
        images = vary(images, rng)
        for group in self._optimiser.param_groups:
            group["lr"] = settings.learning_rate * _rate(self.done, self.steps)
        self._optimiser.zero_grad()
        loss = 0.0
        guidance = settings.between * max(0.0, 1.0 - 2.0 * self.done / self.steps)
        parts = [images] if self._batched else list(torch.split(images, 1))
        for part in parts:
            with torch.autocast("cpu", torch.bfloat16, enabled=self._half):
                values = self._compare(part)
            error = self._error(*values, guidance) / len(parts)
            error.backward()  # type: ignore[no-untyped-call]
            loss += float(error.detach())
        if not math.isfinite(loss):
            raise ModelError(
                f"recovery: the loss is {loss} at step {self.done}; fix: a lower learning rate"
            )
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimiser.step()
        self.done += 1

    def _compare(self, images: torch.Tensor) -> tuple[Values, Values]:
        """Values of the student, and those of the teacher."""
        with torch.no_grad():
            expected: Values = self._teacher(images)
        found: Values = self._student(images)
        return found, expected

    def _error(self, found: Values, expected: Values, guidance: float = 0.0) -> torch.Tensor:
        guides = [guidance * weight for weight in self._guides] if guidance else []
        terms = [
            weight * (one.float() - other.float()).square().mean()
            for weight, one, other in zip([*self._weights, *guides], found, expected, strict=False)
        ]
        if self._view is not None:
            boxes = found[: self._returned], expected[: self._returned]
            terms.append(self.settings.localisation * measure_boxes(*boxes, self._view))
        return torch.stack(terms).sum()

    def judge(self) -> None:
        """Measure the loss on the held-out frames; keep the state if it is the best."""
        with torch.no_grad():
            compared = (self._compare(torch.from_numpy(image)) for image in self.judges)
            errors = [float(self._error(found, expected)) for found, expected in compared]
        loss = sum(errors) / len(errors)
        if self.done == 0:
            self.loss_before = loss
        if loss < self.best_loss:
            self.best_loss, self.best_step = loss, self.done
            self._best = copy.deepcopy(self._reduced.state_dict())

    def state(self) -> dict[str, Any]:
        """State of the run: everything that the rest of it depends on."""
        return {
            **{name: getattr(self, name) for name in _FIGURES},
            "weights": self._reduced.state_dict(),
            "best": self._best,
            "optimiser": self._optimiser.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`."""
        for name in _FIGURES:
            setattr(self, name, state[name])
        self._reduced.load_state_dict(state["weights"])
        self._best = state["best"]
        self._optimiser.load_state_dict(state["optimiser"])

    def finish(self) -> None:
        """Load the best state into the network."""
        self._reduced.load_state_dict(self._best)
        for parameter in self._parameters:
            parameter.requires_grad_(False)
            parameter.grad = None


def _rate(step: int, steps: int) -> float:
    """Share of the peak learning rate: a short rise, then a cosine down to zero."""
    rise = max(1, steps // 20)
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1.0 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def save_checkpoint(path: Path, fingerprint: str, state: Mapping[str, Any]) -> None:
    """Write a state of tensors, numbers and strings, replacing the file as a whole."""
    half = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Into memory first: of a disk that fails torch makes a RuntimeError without its reason.
        data = io.BytesIO()
        torch.save({_FINGERPRINT: fingerprint, **state}, data)
        with half.open("wb") as file:
            file.write(data.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except OSError as error:
        raise ConfigurationError(
            f"checkpoint {path} cannot be written: {error.strerror}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            half.unlink()


def load_checkpoint(path: Path, fingerprint: str) -> dict[str, Any] | None:
    """Read a state, without running code; None if it is missing, damaged or of another run."""
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        found = state.pop(_FINGERPRINT)
    except Exception as error:  # torch.load raises the errors of its many formats
        logger.warning("checkpoint %s is damaged (%s): starting anew", path, error)
        return None
    if found != fingerprint:
        logger.warning("checkpoint %s is of another run: starting anew", path)
        return None
    return dict(state)
