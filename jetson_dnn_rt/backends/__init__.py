"""torch, ONNX Runtime, OpenVINO, TensorRT and null behind one interface, imported on use."""
