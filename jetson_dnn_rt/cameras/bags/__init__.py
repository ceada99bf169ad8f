"""Images in rosbags: MCAP, SQLite and ROS 1, damaged ones too."""
