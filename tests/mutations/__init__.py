"""The harness itself is tested: rendered kernels are made wrong in one place each, and must be found out."""
