"""C99 sources of networks: kernels that TVM scheduled, and all around them, without a runtime."""
