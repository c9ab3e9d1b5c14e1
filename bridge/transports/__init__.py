"""Clients towards backends. `http` needs aiohttp and is imported only where it is used."""
