"""Authentication: API keys, tokens, origins of pages, and a log of refusals."""
