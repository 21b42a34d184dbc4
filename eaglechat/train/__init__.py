"""Trains EAGLE-3 drafts. Needs the extra `train` (torch); nothing else in the package does."""

import os

# Read when torch is first imported. Large pages for large tensors:
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
# OpenMP threads that wait awake: training is many small operations, which threads that sleep at
# once, as the chat's do, would hold up.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")
