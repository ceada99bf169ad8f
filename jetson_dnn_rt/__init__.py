# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Real-time perception on NVIDIA Jetson: DNNs on camera frames with a deadline for every frame."""

import os
import sys

__version__ = "0.1.0"

# The second wall behind `cameras.encoded_pictures.MAX_PIXELS`. OpenCV reads it once, when it is
# loaded, and any module may be the first to load it: this one is imported before all of them.
os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(1 << 26))

# A robot tells nobody what it runs. ONNX Runtime (Microsoft, late versions) and OpenVINO
# (Google Analytics, when it is imported) do unless they are told not to before they are loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
