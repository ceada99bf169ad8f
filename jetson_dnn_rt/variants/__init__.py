"""How a model runs: decomposition, back end and precision."""
