"""Files of people and of machines, read within limits and written whole; processes of this machine."""
