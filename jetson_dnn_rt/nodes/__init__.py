"""The ROS 2 nodes; the only place that imports rclpy."""
