"""Tests of the modules that are copied into every family, and of rendered copies of them."""
