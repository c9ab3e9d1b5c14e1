"""The configuration as models: every key with its type, its default and a description.

Each model checks its own section; `bridge.engine.config.checks` checks what spans sections. Models are frozen, and
created by `bridge.engine.config.load` and `parse`, whose errors name file, line and key, unlike pydantic's own. An
empty value (`auth:`) is the same as an absent key.
"""
