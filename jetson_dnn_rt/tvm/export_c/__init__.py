"""C99 sources of networks: kernels scheduled by TVM and a driver, without a runtime."""
