"""The host side of this family's functions: how they choose, copy, launch and register with torch."""
