"""How the cores are shared: workers and threads of an inference."""
