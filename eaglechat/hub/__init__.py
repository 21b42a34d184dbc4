"""Models on this machine and on the Hub: the catalogue, downloads, the library, what fits."""

import os

# Read once, when huggingface_hub is imported: the Xet client can neither resume across runs nor
# be cancelled, so files come over plain HTTP.
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
