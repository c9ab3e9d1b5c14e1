"""Names of threads at backends: to a backend, all users of the bridge with one key are one user.

Clients choose the ids of their threads, and a backend with a memory relies on them alone. If the bridge knows its user,
the backend gets an id that only this user's thread can have; the client sees its own.
"""

from __future__ import annotations

import hmac
from uuid import UUID

from bridge.model.jsontext import dumps


def name_at_backend(secret: str, owner: str, thread: str) -> str:
    """The name of this owner's thread: always the same, in every process, for the same secret.

    HMAC-SHA-256 in the form of a UUID (122 bits of it), since some backends take nothing else. The secret matters where
    the same backend may be reached past this rule: through a passthrough route, or a bridge without users.
    """
    digest = hmac.digest(secret.encode(), dumps([owner, thread]), "sha256")
    return str(UUID(bytes=digest[:16], version=5))
