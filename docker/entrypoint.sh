#!/bin/sh
# Runs a command with ROS 2 and the workspace sourced.
. "/opt/ros/$ROS_DISTRO/setup.sh"
. /ws/install/setup.sh
exec "$@"
