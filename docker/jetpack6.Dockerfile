# Jetson with JetPack 6: Ubuntu 22.04, Humble, CUDA 12.6, TensorRT 10.3. From the checkout:
#   docker build -f docker/jetpack6.Dockerfile -t jetson_dnn_rt:jetpack6 .
# What was tried of it, and how to run it: docs/install.md.
FROM nvcr.io/nvidia/l4t-jetpack:r36.4.0@sha256:34ccf0f3b63c6da9eee45f2e79de9bf7fdf3beda9abfd72bbf285ae9d40bb673

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8 ROS_DISTRO=humble

# ROS 2, with the check sum that the official ros images use.
# Versions are not pinned: the archives of ROS and Ubuntu keep only the newest.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates curl \
    && curl -fsSL -o /tmp/ros2-apt-source.deb https://github.com/ros-infrastructure/ros-apt-source/releases/download/1.2.0/ros2-apt-source_1.2.0.jammy_all.deb \
    && echo "767884cf4ed03116b9d64438930a832ed854147ae435279a7924dfdf60f94433 */tmp/ros2-apt-source.deb" | sha256sum --strict --check \
    && apt-get install -y --no-install-recommends /tmp/ros2-apt-source.deb \
    && apt-get update \
    && apt-get install -y --no-install-recommends python3-colcon-common-extensions python3-rosdep \
       python3-venv ros-humble-ros-base \
    && rm -rf /tmp/ros2-apt-source.deb /var/lib/apt/lists/*

WORKDIR /ws
COPY . src/jetson_dnn_rt
RUN apt-get update \
    && rosdep init \
    && rosdep update --rosdistro humble \
    && rosdep install --rosdistro humble --from-paths src --ignore-src -y \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv --system-site-packages /opt/venv \
    && folder=src/jetson_dnn_rt/requirements \
    && /opt/venv/bin/pip install --no-cache-dir -c "$folder/constraints-jammy.txt" \
       -r "$folder/onnx.txt" -r "$folder/traces.txt" -r "$folder/bags.txt"
RUN . /opt/ros/humble/setup.sh \
    && /opt/venv/bin/python -m colcon build --packages-select jetson_dnn_rt

COPY docker/entrypoint.sh /entrypoint.sh
ENTRYPOINT ["/entrypoint.sh"]
CMD ["ros2", "launch", "jetson_dnn_rt", "perception.launch.py"]
