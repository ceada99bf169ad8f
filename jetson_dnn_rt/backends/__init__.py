"""torch, ONNX Runtime, OpenVINO and null behind one interface, imported on use."""
