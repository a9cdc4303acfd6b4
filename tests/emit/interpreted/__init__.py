"""Tests of rendered families that run kernels, which tests/emit/test_interpreted.py starts.

Triton decides at its import whether it interprets. So they are collected only in a process of their own:

    TRITON_INTERPRET=1 python -m pytest -n 0 tests/emit/interpreted
"""
