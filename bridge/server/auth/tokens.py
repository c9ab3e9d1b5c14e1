"""JSON Web Tokens (RFC 7519): their signature, audience and time, the user they name and what they grant."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jwt
from jwt import exceptions
from jwt.algorithms import has_crypto

from bridge.contract import Scope
from bridge.errors import ConfigError
from bridge.server.auth.api_keys import Grant, Reason, checked_user, unauthorized
from bridge.server.auth.jwks import KeySet

if TYPE_CHECKING:
    from bridge.engine.config import JwtSection

log = logging.getLogger("bridge.server")

_SHORT = 32
"""Bytes below which a shared secret can be guessed from one token (RFC 7518, section 3.2)."""
_HMAC_BLOCK = 64

_LEAKS = (ValueError, TypeError, ArithmeticError, RecursionError)
"""What PyJWT raises for odd tokens: lone surrogates, `{"exp": 1e999}`, a header of a thousand lists."""

_REFUSALS: dict[type[Exception], str] = {
    exceptions.ExpiredSignatureError: "The token has expired.",
    exceptions.ImmatureSignatureError: "The token is not valid yet.",
    exceptions.InvalidAudienceError: "The token is meant for another audience.",
    exceptions.InvalidIssuerError: "The token is from another issuer.",
    exceptions.InvalidAlgorithmError: "The token is signed with an algorithm that is not taken here.",
    exceptions.InvalidSignatureError: "The token's signature is wrong.",
    exceptions.MissingRequiredClaimError: "The token lacks a claim that is needed here.",
}


_WORDS = {str(scope): Grant(scopes=frozenset({scope})) for scope in Scope}
"""The default meaning of scopes in the scope claim."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """The user whom a token names, and what it grants."""

    user: str
    grants: tuple[Grant, ...]


class JwtVerifier:
    """Checks tokens according to `server.auth.jwt`.

    Raises `ConfigError` if public keys are configured and the package that checks them is missing.
    """

    def __init__(self, section: JwtSection, keys: KeySet | None = None) -> None:
        """`keys`: those of the issuer, instead of what is at its URL."""
        self._section = section
        self._algorithms = list(section.accepted)
        self._secret, self._keys = b"", keys
        if section.secret is not None:
            secret = section.secret.get_secret_value().encode()
            if len(secret) < _SHORT:
                log.warning("server.auth.jwt.secret can be guessed: it has fewer than %d bytes", _SHORT)
            # HMAC fills keys up to its block with zeros (RFC 2104): the same signature, without PyJWT's warning.
            self._secret = secret.ljust(_HMAC_BLOCK, b"\0")
        elif keys is None:
            if not has_crypto:
                raise ConfigError(
                    "needs the extra jwt: pip install 'dialect-bridge[jwt]'; only secret works without it",
                    key="server.auth.jwt.jwks_url",
                )
            self._keys = KeySet(section.jwks_url or "")
        self._scopes = _WORDS
        if section.scopes is not None:
            self._scopes = {word: Grant(frozenset(each.routes), each.scopes) for word, each in section.scopes.items()}

    async def bearer(self, token: str) -> Bearer:
        """Return the user whom the token names and what it grants.

        Raises `RequestError` (unauthorized) with the reason of the refusal, `BackendError` (503) if the issuer's keys
        cannot be fetched.
        """
        try:
            claims = await self._claims(token)
        except (exceptions.PyJWTError, *_LEAKS) as error:
            # Its own text is not repeated: some hold the key.
            reason = next((_REFUSALS[kind] for kind in type(error).__mro__ if kind in _REFUSALS), None)
            words = reason or "This is neither a known API key nor a well-formed token."
            raise unauthorized(words, Reason.INVALID_TOKEN) from None
        claim = self._section.user_claim
        named = claims.get(claim)
        if isinstance(named, int) and not isinstance(named, bool):
            named = str(named)  # Some issuers number their users.
        user = checked_user(named if isinstance(named, str) else "", f"The token's claim {claim}")
        return Bearer(user, self._grants(claims))

    def _grants(self, claims: Mapping[str, Any]) -> tuple[Grant, ...]:
        """Return a list, or words separated by spaces (RFC 8693). Unknown scopes belong to other services."""
        if self._section.scope_claim is None:
            return (Grant(),)
        granted = claims.get(self._section.scope_claim)
        words = granted.split() if isinstance(granted, str) else granted if isinstance(granted, list) else []
        return tuple(self._scopes[word] for word in words if isinstance(word, str) and word in self._scopes)

    async def close(self) -> None:
        if self._keys is not None:
            await self._keys.close()

    async def _claims(self, token: str) -> dict[str, Any]:
        # The header is read before it is believed: only to find the key. `decode` then checks everything.
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in self._algorithms:
            raise exceptions.InvalidAlgorithmError
        key: jwt.PyJWK | bytes = self._secret
        if self._keys is not None:
            found = await self._keys.find(header.get("kid"), header["alg"])
            if found is None:
                text = "The token is signed with a key that its issuer does not have."
                raise unauthorized(text, Reason.INVALID_TOKEN)
            key = found
        return jwt.decode(
            token,
            key,
            algorithms=self._algorithms,
            audience=self._section.audience,
            issuer=self._section.issuer,
            leeway=self._section.leeway,
            # `sub` need not be text if another claim names the user; `checked_user` checks the one that does.
            options={"verify_sub": False, "require": ["exp"] if self._section.require_exp else []},
        )
