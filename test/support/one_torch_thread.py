# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""One thread of torch, where it is installed: on a busy machine its threads mostly wait."""

from contextlib import suppress

with suppress(ModuleNotFoundError):
    import torch

    torch.set_num_threads(1)
