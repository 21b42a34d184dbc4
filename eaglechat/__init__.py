"""A terminal chat for local GGUF models that shows what EAGLE-3 speculative decoding does."""

__version__ = "0.1.0"
