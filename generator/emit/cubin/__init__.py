"""Rendered families as C: cubins, the choice among them as a table, and what launches them by the CUDA driver."""
