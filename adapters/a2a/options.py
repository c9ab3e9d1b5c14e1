"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bridge.contract import Options


class Skill(Options):
    """What the agent does well, for those who choose among agents."""

    id: str = Field(min_length=1, description="Id of the skill. For: every skill.")
    name: str = Field(min_length=1, description="Name of the skill. For: every skill.")
    description: str = Field(min_length=1, description="What the agent does by it. For: every skill.")
    tags: tuple[str, ...] = Field(
        (), description="Words by which it is found. For: registries that find agents by tags."
    )
    examples: tuple[str, ...] = Field((), description="Requests that it answers. For: clients that show examples.")


class FrontOptions(Options):
    """Options of an A2A route."""

    name: str = Field(
        "", description="Name of the agent on its card; empty = the names of the backends. For: every published agent."
    )
    description: str = Field(
        "",
        description="Description of the agent on its card. For: every published agent, as other agents choose by it.",
    )
    agent_version: str = Field(
        "1.0.0",
        min_length=1,
        description="Version of the agent on its card. For: registries that tell versions of an agent apart.",
    )
    skills: tuple[Skill, ...] = Field(
        (),
        description="The skills on the card: id, name, description, tags and examples of each; none = one skill, chat."
        " For: every published agent, as other agents choose by them.",
    )
    extended_card: bool = Field(
        False,
        description="Offer a card with further skills to callers with a key (GetExtendedAgentCard)."
        " For: agents with skills for known callers only.",
    )
    extended_skills: tuple[Skill, ...] = Field(
        (), description="Further skills of the extended card. For: agents with extended_card."
    )
    provider_name: str = Field(
        "",
        description="Name of the provider on the card, together with provider_url."
        " For: registries that show who runs an agent.",
    )
    provider_url: str = Field(
        "", description="URL of the provider on the card. For: registries that show who runs an agent."
    )
    documentation_url: str = Field(
        "", description="URL of the documentation on the card. For: registries that link it."
    )
    bindings: tuple[Literal["jsonrpc", "http"], ...] = Field(
        ("jsonrpc", "http"),
        min_length=1,
        description="The bindings that the card names, the preferred one first. Both are served in any case."
        " For: clients that take the first binding of a card, whether they know it or not.",
    )
    versions: tuple[Literal["1.0", "0.3"], ...] = Field(
        ("1.0",),
        min_length=1,
        description="The versions of the protocol that clients may speak. For: clients of A2A 0.3.",
    )
    reasoning: Literal["drop", "status"] = Field(
        "drop",
        description="Reasoning of the model: drop, or send it in messages of status WORKING, marked as thoughts. "
        "Most clients show such messages as part of the answer."
        " For: clients that show thoughts apart, such as google-adk.",
    )
    tools: Literal["drop", "status"] = Field(
        "drop",
        description="Tool calls of the backend and their results: drop, or send them as data parts in messages of "
        "status WORKING. Clients that request google-adk's extension always get them."
        " For: clients that show what an agent does.",
    )
    answer: Literal["artifact", "message"] = Field(
        "artifact",
        description="Where the texts of an answer are: in artifacts, or also in the message of the last status, for "
        "chat pages that show messages only. Clients that show both would show the answer twice."
        " For: assistant-ui and other chat pages that read messages only.",
    )
    push: Literal[False] | Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = Field(
        False,
        description="Send push notifications to URLs of clients at these hosts (name, *.name, name:port), if their "
        "addresses are public; needs a durable route. false = never."
        " For: clients that cannot wait for a long task.",
    )

    @property
    def push_hosts(self) -> tuple[str, ...]:
        """The hosts that may be sent push notifications; none without option push."""
        return self.push or ()


class BackOptions(Options):
    """Options of an A2A backend."""

    card: Literal["fetch", "none"] = Field(
        "fetch",
        description="fetch: read the agent card below url; of its addresses only the path is used. none: call url "
        "itself, for agents without a card."
        " For: agents without a card.",
    )
    binding: Literal["jsonrpc", "http+json"] | None = Field(
        None,
        description="Binding of requests; null = JSON-RPC if the agent offers it."
        " For: agents of which one binding is broken.",
    )
    version: Literal["1.0", "0.3"] | None = Field(
        None,
        description="Version of the protocol; null = 1.0 if the agent offers it."
        " For: agents whose card names a version that they do not speak.",
    )
    progress: Literal["reasoning", "text", "drop"] = Field(
        "reasoning",
        description="Messages of the agent while it works on a task: reasoning, text, or drop."
        " For: agents whose answer is in these messages (text), or who repeat themselves in them "
        "(drop).",
    )
    tools: Literal["drop", "refuse"] = Field(
        "drop",
        description="Tools of the client, which the protocol has no field for: drop, or refuse the request."
        " For: applications that must not lose a tool silently.",
    )
    metadata: bool = Field(
        False,
        description="Send the request's metadata, and its user as user_id, in the metadata of the message."
        " For: agents that read user_id or metadata of their own.",
    )
    extensions: tuple[str, ...] = Field(
        (),
        description="URIs for the header A2A-Extensions, such as that of google-adk."
        " For: google-adk, and agents that require an extension.",
    )
