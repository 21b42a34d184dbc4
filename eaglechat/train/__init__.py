"""Trains EAGLE-3 drafts. Needs the extra `train` (torch); nothing else in the package does."""

import os

# Read when torch is first imported. Large pages for large tensors:
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
# OpenMP threads that wait awake for some 100 microseconds: training is many small operations, and
# 1.4 times as fast as with threads that sleep at once, as the chat's do.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")
