"""The configuration as models: every key with its type, its default and a line that says what it is.

The models check what one section can know of itself; what spans sections is in `bridge.config.checks`. They are
frozen, and made by `bridge.config.load` and `parse`, whose errors name file, line and key; pydantic's own do not.
An empty value (`auth:`) is the same as an absent key.
"""
