"""A kernel as its template reads it: operands, accumulation, epilogue, launcher and docstring, all chosen."""
