"""The optional contracts: what a few dialects are besides a codec, one module each."""
