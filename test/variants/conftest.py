"""One thread of torch, for on a busy machine its threads mostly wait; and an empty library."""

import pytest
import torch

from jetson_dnn_rt.variants.library.library import Library

torch.set_num_threads(1)


@pytest.fixture
def library(tmp_path):
    return Library(tmp_path / "cache")
