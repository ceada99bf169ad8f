"""Against the usual rclpy node."""
