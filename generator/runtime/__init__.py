"""The host side of this family's functions: how they choose, copy, launch, register with torch and compile ahead."""
