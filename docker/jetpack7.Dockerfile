# Jetson with JetPack 7: Ubuntu 24.04, Jazzy, CUDA 13.0, TensorRT 10.13. NVIDIA publishes no
# l4t-jetpack for it; the images for Arm servers serve. From the checkout:
#   docker build -f docker/jetpack7.Dockerfile -t jetson_dnn_rt:jetpack7 .
# What was tried of it, and how to run it: docs/install.md. Pinned by its tag: no digest could be had.
FROM nvcr.io/nvidia/tensorrt:25.08-py3

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8 ROS_DISTRO=jazzy

# ROS 2, with the check sum that the official ros images use.
# Versions are not pinned: the archives of ROS and Ubuntu keep only the newest.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates curl \
    && curl -fsSL -o /tmp/ros2-apt-source.deb https://github.com/ros-infrastructure/ros-apt-source/releases/download/1.2.0/ros2-apt-source_1.2.0.noble_all.deb \
    && echo "0804d9b13db770eb87019be414cd78378835228ad5fa801fc88758596dd8f7e5 */tmp/ros2-apt-source.deb" | sha256sum --strict --check \
    && apt-get install -y --no-install-recommends /tmp/ros2-apt-source.deb \
    && apt-get update \
    && apt-get install -y --no-install-recommends python3-colcon-common-extensions python3-rosdep \
       python3-venv ros-jazzy-ros-base \
    && rm -rf /tmp/ros2-apt-source.deb /var/lib/apt/lists/*

WORKDIR /ws
COPY . src/jetson_dnn_rt
RUN apt-get update \
    && rosdep init \
    && rosdep update --rosdistro jazzy \
    && rosdep install --rosdistro jazzy --from-paths src --ignore-src -y \
    && rm -rf /var/lib/apt/lists/*
# By its path: the base image may have another Python first.
RUN /usr/bin/python3 -m venv --system-site-packages /opt/venv \
    && folder=src/jetson_dnn_rt/requirements \
    && /opt/venv/bin/pip install --no-cache-dir -c "$folder/constraints-noble.txt" \
       -r "$folder/onnx.txt" -r "$folder/traces.txt" -r "$folder/bags.txt"
RUN . /opt/ros/jazzy/setup.sh \
    && /opt/venv/bin/python -m colcon build --packages-select jetson_dnn_rt

COPY docker/entrypoint.sh /entrypoint.sh
ENTRYPOINT ["/entrypoint.sh"]
CMD ["ros2", "launch", "jetson_dnn_rt", "perception.launch.py"]
