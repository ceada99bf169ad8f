"""Sources of networks: built-in, ONNX, torchvision, exported programs, null."""
