"""A kernel as its template reads it: operands, accumulation, epilogue, launcher, its checks, docstring, all chosen."""
