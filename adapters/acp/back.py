"""The bridge as a client of agents: options of backends, and the half of the dialect that calls them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bridge.contract import Context, Options, WireRequest, WireResponse, json_request
from bridge.contract.optional.agents import AgentDialect, AgentLimits, Permissions
from bridge.dialects.acp.agent import Connection
from bridge.dialects.acp.read_answer import Decoder, failure_of
from bridge.dialects.acp.wire import ERRORS
from bridge.dialects.acp.write_request import prompt_blocks
from bridge.errors import Failure
from bridge.model import Event, Request
from bridge.model.jsontext import dict_of, dumps, read_json
from bridge.toolkit.error_table import KEYS, OWN
from bridge.toolkit.units import Seconds

_Seconds = Annotated[Seconds, Field(gt=0)]


class BackOptions(Options):
    """Options of an agent."""

    permissions: Permissions = Field(
        "ask",
        description="Who decides what the agent asks permission for: `ask`, the person, with the next request of the "
        "conversation, and `reject` where there is no next request; `reject`; or `allow_once`, everything, each time."
        " For: runs without a person (reject, or allow_once in a sandbox).",
    )
    mode: str = Field(
        "",
        description="Id of the mode of the agent's sessions, such as `default` or `plan`; empty = the agent's own "
        "choice, in which some agents ask for no permission."
        " For: Claude Code, which decides by itself unless its mode is default.",
    )
    auth_method: str = Field(
        "",
        description="Id of the agent's way to authenticate that needs no person; empty = none is chosen."
        " For: agents that offer several ways, such as Codex.",
    )
    sessions_per_process: int = Field(
        8,
        ge=1,
        description="Sessions of one owner that share a process."
        " For: agents whose sessions disturb each other (1), or small machines.",
    )
    processes: int = Field(
        4, ge=1, description="Processes at a time, or connections to `url`. For: small machines, or many users."
    )
    idle: _Seconds = Field(
        600.0,
        description="Time without a run after which a process is ended."
        " For: small machines, or agents that start slowly.",
    )
    start_timeout: _Seconds = Field(
        30.0, description="Time that an agent has until it takes a prompt. For: agents that npx downloads first."
    )
    cancel_timeout: _Seconds = Field(
        5.0,
        description="Time that a canceled prompt has to end; then the agent's process is ended."
        " For: agents that finish a tool before they stop.",
    )
    park_for: _Seconds = Field(
        600.0, description="Time that the agent waits for the answer to its question. For: people who answer later."
    )


class Back(AgentDialect):
    """The half of the dialect that calls agents."""

    back_options = BackOptions

    def limits(self, options: Options) -> AgentLimits:
        own = options if isinstance(options, BackOptions) else BackOptions()
        return AgentLimits(
            processes=own.processes,
            sessions=own.sessions_per_process,
            idle=own.idle,
            start=own.start_timeout,
            grace=own.cancel_timeout,
            park=own.park_for,
        )

    def permissions(self, options: Options) -> Permissions:
        return options.permissions if isinstance(options, BackOptions) else "ask"

    def connection(self, options: Options, *, asks: bool) -> Connection:
        own = options if isinstance(options, BackOptions) else BackOptions()
        return Connection(auth_method=own.auth_method, mode=own.mode, asks=asks)

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        """Return the prompt for a session that is new, as a message of JSON-RPC."""
        params = {
            "sessionId": request.thread_id or context.thread_id or "",
            "prompt": prompt_blocks(request, context, fresh=True),
        }
        return json_request("", dumps({"jsonrpc": "2.0", "id": 0, "method": "session/prompt", "params": params}))

    def decoder(self, context: Context) -> Decoder:
        return Decoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        decoder = Decoder(context)
        return [*decoder.feed([wire.body]), *decoder.close()]

    def decode_error(self, wire: WireResponse) -> Failure:
        """Return the failure of a response with an error, which may be that of another bridge."""
        error = dict_of(dict_of(read_json(wire.body)).get("error"))
        if dict_of(error.get("data")).get("code") in OWN and wire.status not in KEYS:
            return ERRORS.with_headers(failure_of(error), wire)
        return ERRORS.decode(wire)
