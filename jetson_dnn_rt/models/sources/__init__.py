"""Where networks come from: built-in, ONNX, torchvision, exported programs, null."""
