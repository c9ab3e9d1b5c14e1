"""Fields by which a client would choose where its backend is, with which key, or with which headers it is called.

Many servers of the OpenAI family read such fields from the body (LiteLLM's proxy most of them), so that a client could
send the operator's key to a host of its own. The bridge reads none of them, and does not forward them as unknown
fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bridge.contract import Feature, Losses
from bridge.model import Request

_FIELDS = """
    api_base api_base_url api_key api_type api_url auth_token access_token authorization base_url bearer_token
    azure_ad_token azure_ad_token_provider azure_endpoint azure_password azure_username client_id client_secret
    aws_access_key_id aws_bedrock_runtime_endpoint aws_external_id aws_profile_name aws_region_name aws_role_name
    aws_secret_access_key aws_session_name aws_session_token aws_sts_endpoint aws_web_identity_token
    vertex_ai_credentials vertex_ai_location vertex_ai_project vertex_credentials vertex_location vertex_project
    custom_headers default_headers default_query extra_body extra_headers extra_query headers http_headers
    credentials custom_llm_provider endpoint_url fallbacks http_proxy https_proxy litellm_credential_name
    litellm_params model_list organization proxy proxies tenant_id user_config
"""
_SAME = frozenset(_FIELDS.replace("_", "").split())
"""Compared without case, dashes and underscores: `apiKey`, `api-key` and `API_KEY` are one field."""
_WITHIN = ("fields", "forwardedProps")
"""Objects in which dialects nest unknown fields."""


def redirects(name: str) -> bool:
    """Return whether a field of this name chooses an address or an identity."""
    return name.replace("_", "").replace("-", "").lower() in _SAME


def without_redirects(request: Request, lost: Losses) -> Request:
    """The request without such fields; what was taken out is noted by name, never by value."""
    if not request.extras or not any(request.extras.values()):
        return request
    named: list[str] = []
    extras = dict(request.extras)
    for dialect, fields in request.extras.items():
        if fields:
            extras[dialect] = _cleaned(fields, named)
    if not named:
        return request
    listed = ", ".join(sorted({name[:40] for name in named}))
    lost.add(Feature.EXTRAS, f"{listed}: only the configuration can set where and how a backend is called")
    return replace(request, extras=extras)


def _cleaned(fields: Mapping[str, Any], named: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in fields.items():
        if redirects(name):
            named.append(name)
        elif name in _WITHIN and isinstance(value, dict):
            out[name] = _cleaned(value, named)
        else:
            out[name] = value
    return out
