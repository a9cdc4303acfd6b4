"""Formulas, operations and chains of them: data and algebra. It reads no file and imports no other package of these."""
