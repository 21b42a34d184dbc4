"""Checks for a machine with a GPU; see docs/gpu.md."""
