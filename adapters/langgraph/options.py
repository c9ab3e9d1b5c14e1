"""The options of a backend that is a LangGraph server."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Options

Parameter = Literal["model", "temperature", "top_p", "max_tokens", "stop", "seed", "reasoning_effort", "user_id"]
"""What of a request an agent may read in its `context`."""


class BackOptions(Options):
    """Options of a backend."""

    assistant_id: str = Field(
        "agent",
        min_length=1,
        description="The graph that is run: its name in `langgraph.json`, or an assistant's UUID."
        " For: every graph that is not named agent.",
    )
    threads: Literal["auto", "always"] = Field(
        "auto",
        description="A request without a thread is a run without one, which keeps nothing; `always` makes a thread for "
        "it, for servers without such runs (aegra)."
        " For: aegra, which has no runs without a thread.",
    )
    multitask_strategy: Literal["enqueue", "reject", "interrupt", "rollback"] | None = Field(
        None,
        description="What becomes of a run while another one of its thread is on; null = as the server has it."
        " For: people who write while an answer is on.",
    )
    recursion_limit: int | None = Field(
        None,
        ge=1,
        description="The most steps of a run, after which it fails; null = as the server has it."
        " For: graphs with many steps.",
    )
    nodes: list[str] | None = Field(
        None,
        description="The nodes whose messages are the answer; null = all, also those of routers and judges."
        " For: graphs with routers or judges.",
    )
    steps: bool = Field(False, description="Tell clients when a node begins and ends. For: AG-UI pages that show them.")
    configurable: list[Parameter] = Field(
        [],
        description="Parameters of a request that the agent gets in its `context`, under these names."
        " For: graphs that read the model or a temperature from their context.",
    )
    tools: Literal["drop", "state"] = Field(
        "drop",
        description="`state`: the client's tools are the key `tools` of the input, as OpenAI's functions."
        " For: graphs that bind the client's tools, such as CopilotKit's.",
    )
    state: bool = Field(
        False,
        description="The keys of a client's state are keys of the input."
        " For: graphs that share state with a page (CopilotKit, AG-UI).",
    )
    context: bool = Field(
        False,
        description="The entries of a client's context are in the run's `context`."
        " For: graphs that read what a page tells about itself.",
    )
    metadata: bool = Field(
        True, description="A request's metadata are those of the run. For: traces that must not hold what clients send."
    )
    user_id: bool = Field(
        False,
        description="The user that a request names is `user_id` in the run's configuration, which clients choose."
        " For: graphs that remember each user.",
    )
