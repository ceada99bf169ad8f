"""A ROS process: start, spin, lifecycle, parameters, end."""
