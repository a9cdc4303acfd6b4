"""Tests of families that run kernels: collected where TRITON_INTERPRET=1, run by tests/emit/test_interpreted.py.

Triton decides at its import whether it interprets, so that they need a process of their own:

    TRITON_INTERPRET=1 python -m pytest -n 0 tests/emit/interpreted
"""
