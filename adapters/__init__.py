"""The dialects that this project brings. They are imported as `bridge.dialects`, which is a link to this folder.

A second name would be a second copy of each class: the folder is no package by itself, although a checkout makes it
look like one.
"""

if __name__ != "bridge.dialects":
    raise ImportError(f"{__name__!r} is a folder of dialect-bridge's checkout: import bridge.dialects", name=__name__)
