"""Clients towards backends: over HTTP, over gRPC, agents as programs, and agents in this process.

`http` needs aiohttp and is imported only where it is used.
"""
