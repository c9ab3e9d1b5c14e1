"""An issuer of tokens: signs them, and serves its public keys over a real socket."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from tests.server.harness import Exchange, FakeBackend

URL_PATH = "/.well-known/jwks.json"
_MAKERS: dict[str, Any] = {
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "PS256": lambda: rsa.generate_private_key(65537, 2048),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


class SigningKey:
    """One key of an issuer. `told`: members of its public form that are left out when None."""

    def __init__(self, kid: str | None = "k1", algorithm: str = "ES256", **told: str | None) -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.private = _MAKERS[algorithm]()
        public = get_default_algorithms()[algorithm].to_jwk(self.private.public_key(), as_dict=True)
        extra = {"kid": kid, "alg": algorithm, "use": "sig", **told}
        self.public = {**public, **{k: v for k, v in extra.items() if v is not None}}
        self.public.pop("key_ops", None)

    def sign(self, *, algorithm: str | None = None, **claims: Any) -> str:
        """A token of alice's that is good for a minute, but for what `claims` says."""
        body = {"sub": "alice", "exp": int(time.time()) + 60, **claims}
        headers = {} if self.kid is None else {"kid": self.kid}
        return jwt.encode(
            {k: v for k, v in body.items() if v is not None},
            self.private,
            algorithm=algorithm or self.algorithm,
            headers=headers,
        )


class Issuer:
    """Serves the public forms of `keys` from a scripted backend; `status` other than 200 is a failing issuer."""

    def __init__(self, backend: FakeBackend, *keys: SigningKey) -> None:
        self.backend = backend
        self.keys = list(keys)
        self.status = 200
        backend.plays(self._answer)

    @property
    def url(self) -> str:
        return self.backend.url + URL_PATH

    @property
    def asked(self) -> int:
        return len(self.backend.seen)

    async def _answer(self, exchange: Exchange) -> None:
        body = json.dumps({"keys": [key.public for key in self.keys]}).encode()
        await exchange.answer(self.status, body)
