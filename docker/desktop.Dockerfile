# A PC without a GPU (amd64 or arm64): Ubuntu 24.04, Jazzy, ONNX Runtime and OpenVINO. From the checkout:
#   docker build -f docker/desktop.Dockerfile -t jetson_dnn_rt:desktop .
# What was tried of it, and how to run it: docs/install.md.
FROM ros:jazzy-ros-base-noble@sha256:066420e07f60aa18262f2479981def87ebcfcec42eefb0c0c57c4a46098348ca

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV DEBIAN_FRONTEND=noninteractive

WORKDIR /ws
COPY . src/jetson_dnn_rt
# Versions are not pinned: the archives of ROS and Ubuntu keep only the newest.
# hadolint ignore=DL3008
RUN apt-get update \
    && rosdep update --rosdistro jazzy \
    && rosdep install --rosdistro jazzy --from-paths src --ignore-src -y \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv --system-site-packages /opt/venv \
    && folder=src/jetson_dnn_rt/requirements \
    && /opt/venv/bin/pip install --no-cache-dir -c "$folder/constraints-noble.txt" \
       -r "$folder/onnx.txt" -r "$folder/openvino.txt" -r "$folder/traces.txt" -r "$folder/bags.txt"
RUN . /opt/ros/jazzy/setup.sh \
    && /opt/venv/bin/python -m colcon build --packages-select jetson_dnn_rt

COPY docker/entrypoint.sh /entrypoint.sh
ENTRYPOINT ["/entrypoint.sh"]
CMD ["ros2", "launch", "jetson_dnn_rt", "perception.launch.py"]
