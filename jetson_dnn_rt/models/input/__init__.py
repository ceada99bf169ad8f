"""The input of a network: encodings of frames, preprocessing, the pass that fills it."""
