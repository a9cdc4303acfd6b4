"""Which kernels exist: the product of the axes, the legality table, configurations, and the resources they take."""
