"""Comparison with the usual rclpy node under overload."""
