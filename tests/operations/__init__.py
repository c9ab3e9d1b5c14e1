"""What operators reported: the first second of a process, its signals and descriptors, addresses, proxies, secrets,
stores and processes that go away or hang.
"""
