# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Import every package that the environment should have, and print the versions."""

from __future__ import annotations

import importlib
import sys

DEMO = (
    *("numpy", "cv2", "yaml", "onnxruntime", "matplotlib", "pyarrow"),
    *("onnx", "rclpy", "vision_msgs.msg", "statistics_msgs.msg", "jetson_dnn_rt"),
)
NODES = (*DEMO, "safetensors", "torch", "torchvision", "openvino", "pytest")
ROBOT = (*DEMO, "openvino", "rosbags", "rich", "trackforge", "pytest")
MODULES = {"demo": DEMO, "robot": ROBOT, "nodes": NODES, "everything": (*NODES, "nncf", "tvm")}
# NVIDIA's torch on a Jetson comes without torchvision; not every machine has wheels of TVM.
OPTIONAL = ("torchvision", "tvm")


def main() -> int:
    """Import the modules of a purpose (`setup_env.GROUPS`) one by one; return 1 when one fails."""
    failed = False
    for name in MODULES[sys.argv[1]]:
        try:
            module = importlib.import_module(name)
            if name == "torchvision":
                import torch

                # torchvision built for another torch imports, but lacks its operators.
                module.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
        except Exception as error:
            optional = isinstance(error, ImportError) and name in OPTIONAL
            failed = failed or not optional
            print(f"{name}: {'not there' if optional else 'FAILED'}: {error}")
        else:
            version = getattr(module, "__version__", "")
            print(f"{name} {version}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
