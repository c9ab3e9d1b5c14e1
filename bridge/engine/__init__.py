"""From a configuration to live routes and backends, with or without a server in front.

`bridge.engine.bridge` has `Bridge`, of which the server is one caller.
"""
