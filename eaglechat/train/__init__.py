"""Trains EAGLE-3 drafts. Needs the extra `train` (torch); nothing else in the package does."""

import os

# Read when torch is first imported: large pages for large tensors, and OpenMP threads that do not
# spin long (see eaglechat.engine.bindings).
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "300")
# Products of the many sizes that training has are compiled once, not again and again.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")
