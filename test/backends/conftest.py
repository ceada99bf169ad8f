import one_torch_thread  # noqa: F401
