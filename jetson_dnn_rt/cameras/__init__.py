"""Where frames come from: synthetic drives, videos, folders of images, devices, GStreamer."""
