"""PyTorch on the CPU and on CUDA."""
