"""Models on this machine and on the Hub: the catalogue, downloads, the library, what fits."""
