"""One thread of torch: on a busy machine its threads mostly wait for each other."""

import torch

torch.set_num_threads(1)
