"""Files of people and of machines, read within limits and written whole; caches and processes of this machine."""
