# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tasks of several cameras that run one model in batches."""

import numpy as np

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running.batching import BatchGroup
from jetson_dnn_rt.variants.running.variant_set import VariantSet

FRAME = Frame(np.full((40, 60, 3), 114, np.uint8), "bgr8", 0, 0)


class Cameras:
    """Tasks of one model and a batch group of them; every size is used, however long it takes."""

    def __init__(self, model, names, count, stages=1, max_share=float("inf"), **options):
        config = TaskConfig(variants=tuple(names), stages=stages, finest_stages=True)
        self.sets: dict[str, VariantSet] = {}
        for index in range(count):
            # Cuts are found by times: each by itself could find others.
            like = self.sets.get("camera_0")
            self.sets[f"camera_{index}"] = VariantSet(config, model, like=like, **options)
        self.group = BatchGroup(self.sets, workers=1, clock=SteadyClock(), max_share=max_share)

    def work(self, slot, name, sequence=0):
        """A frame of its own, preprocessed."""
        work = Work(make_frame(slot, sequence))
        list(self.sets.values())[slot].pipelines[name].stages[0].run(work)
        return work

    def stages(self, slot, name):
        return list(self.sets.values())[slot].pipelines[name].stages

    def run_batch(self, name, works, leader, index=1):
        """Run one stage for frames of several tasks at once."""
        run_batch = self.stages(leader, name)[index].run_batch
        run_batch(works)

    def run_alone(self, slot, name, sequence=0):
        work = Work(make_frame(slot, sequence))
        for stage in self.stages(slot, name):
            stage.run(work)
        return work.result

    def decode(self, slot, name, work):
        self.stages(slot, name)[-1].run(work)
        return work.result

    def close(self):
        self.group.close()
        for variants in self.sets.values():
            variants.close()


def make_frame(slot, sequence=0):
    rng = np.random.default_rng(100 * sequence + slot)
    return Frame(rng.integers(0, 256, (40, 60, 3), np.uint8), "bgr8", 0, sequence)
