"""From a picture to the input tensor, in one pass."""
