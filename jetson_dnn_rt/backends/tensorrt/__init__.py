"""TensorRT: building engines and running them."""
