"""One talk of an application that uses one library: `talk.py LIBRARY BASE_URL`, over the chat of OpenAI's API.

The model calls a tool, the library runs it and asks again, then the user says thanks. Prints what the application saw,
in JSON: for each turn its text, and how many pieces it came in.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from typing import Any, ClassVar

MODEL, KEY = "m-1", "client-key"
QUESTIONS = ("What is it like in Paris?", "Thanks.")
SYSTEM = "Be brief."
Turns = list[tuple[str, int]]


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


async def llm(base: str) -> Turns:
    import llm as library
    from llm.default_plugins.openai_models import Chat

    model = Chat(MODEL, model_name=MODEL, api_base=base, supports_tools=True)
    talk = model.conversation(tools=[library.Tool.function(get_weather)])
    turns = []
    for question in QUESTIONS:
        answer = talk.chain(question, system=SYSTEM, key=KEY)
        pieces = [piece for piece in answer if piece]
        turns.append(("".join(pieces), len(pieces)))
    return turns


async def openai_agents(base: str) -> Turns:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel(MODEL, AsyncOpenAI(base_url=base, api_key=KEY, max_retries=0))
    agent = Agent("helper", instructions=SYSTEM, model=model, tools=[function_tool(get_weather)])
    talk: list[Any] = []
    turns = []
    for question in QUESTIONS:
        run = Runner.run_streamed(agent, [*talk, {"role": "user", "content": question}])
        pieces = [e async for e in run.stream_events() if getattr(getattr(e, "data", None), "delta", None)]
        talk = run.to_input_list()
        turns.append((run.final_output, len(pieces)))
    return turns


async def autogen(base: str) -> Turns:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.messages import ModelClientStreamingChunkEvent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    info: Any = dict.fromkeys(("vision", "json_output", "structured_output"), False)
    info |= {"function_calling": True, "family": "unknown"}
    client = OpenAIChatCompletionClient(model=MODEL, base_url=base, api_key=KEY, model_info=info, max_retries=0)
    agent = AssistantAgent(
        "helper", client, tools=[get_weather], system_message=SYSTEM, reflect_on_tool_use=True, model_client_stream=True
    )
    turns = []
    for question in QUESTIONS:
        events = [event async for event in agent.run_stream(task=question)]
        pieces = [e for e in events if isinstance(e, ModelClientStreamingChunkEvent)]
        turns.append((events[-1].messages[-1].content, len(pieces)))
    return turns


async def llama_index(base: str) -> Turns:
    from llama_index.core.agent.workflow import AgentStream, FunctionAgent
    from llama_index.core.memory import ChatMemoryBuffer
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(MODEL, api_base=base, api_key=KEY, is_chat_model=True, is_function_calling_model=True)
    agent = FunctionAgent(tools=[get_weather], llm=model, system_prompt=SYSTEM)
    memory = ChatMemoryBuffer.from_defaults(token_limit=100_000)
    turns = []
    for question in QUESTIONS:
        run = agent.run(question, memory=memory)
        pieces = [e async for e in run.stream_events() if isinstance(e, AgentStream) and e.delta]
        turns.append((str(await run), len(pieces)))
    return turns


async def haystack(base: str) -> Turns:
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret

    pieces: list[Any] = []
    generator = OpenAIChatGenerator(Secret.from_token(KEY), MODEL, api_base_url=base)
    agent = Agent(chat_generator=generator, tools=[create_tool_from_function(get_weather)], system_prompt=SYSTEM)
    talk: list[Any] = []
    turns = []
    for question in QUESTIONS:
        pieces.clear()
        talk.append(ChatMessage.from_user(question))
        answer = agent.run(messages=talk, streaming_callback=lambda piece: piece.content and pieces.append(piece))
        talk = [m for m in answer["messages"] if m.role != "system"]
        turns.append((answer["messages"][-1].text, len(pieces)))
    return turns


async def smolagents(base: str) -> Turns:
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool
    from smolagents.models import ChatMessageStreamDelta

    def described(city: str) -> str:
        """The weather of a city.

        Args:
            city: its name
        """
        return get_weather(city)

    described.__name__ = "get_weather"
    model = OpenAIServerModel(MODEL, api_base=base, api_key=KEY)
    agent = ToolCallingAgent([tool(described)], model, stream_outputs=True, instructions=SYSTEM)
    turns = []
    for question in QUESTIONS:
        events = list(agent.run(question, stream=True, reset=False))
        pieces = [e for e in events if isinstance(e, ChatMessageStreamDelta)]
        turns.append((events[-1].output, len(pieces)))
    return turns


async def semantic_kernel(base: str) -> Turns:
    from openai import AsyncOpenAI
    from semantic_kernel.agents import AgentThread, ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import kernel_function

    class Weather:
        @kernel_function
        def get_weather(self, city: str) -> str:
            return get_weather(city)

    client = AsyncOpenAI(base_url=base, api_key=KEY, max_retries=0)
    service = OpenAIChatCompletion(ai_model_id=MODEL, async_client=client)
    agent = ChatCompletionAgent(service=service, name="helper", instructions=SYSTEM, plugins=[Weather()])
    thread: AgentThread | None = None
    turns = []
    for question in QUESTIONS:
        pieces = []
        async for answer in agent.invoke_stream(messages=question, thread=thread):
            thread = answer.thread
            pieces.append(str(answer.message))
        turns.append(("".join(pieces), len(pieces)))
    return turns


async def mirascope(base: str) -> Turns:
    from mirascope import llm as library

    library.register_provider("openai", scope="openai/", base_url=base, api_key=KEY)
    model = library.Model(f"openai/{MODEL}:completions")
    messages: list[Any] = [library.messages.system(SYSTEM)]
    turns = []
    for question in QUESTIONS:
        answer = model.stream([*messages, library.messages.user(question)], tools=[library.tool(get_weather)])
        pieces = list(answer.text_stream())
        while answer.tool_calls:
            answer = answer.resume(answer.execute_tools())
            pieces += answer.text_stream()
        messages = answer.messages
        turns.append(("".join(pieces).rstrip(), len(pieces)))
    return turns


async def qwen_agent(base: str) -> Turns:
    from qwen_agent.agents import Assistant
    from qwen_agent.tools.base import BaseTool

    class Weather(BaseTool):
        name = "get_weather"
        description = "The weather of a city."
        parameters: ClassVar = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

        def call(self, params: str, **kwargs: Any) -> str:
            return get_weather(json.loads(params)["city"])

    model = {
        "model": MODEL,
        "model_type": "oai",
        "model_server": base,
        "api_key": KEY,
        "generate_cfg": {"use_raw_api": True, "max_retries": 0},
    }
    agent = Assistant(llm=model, function_list=[Weather()], system_message=SYSTEM)
    talk: list[Any] = []
    turns = []
    for question in QUESTIONS:
        talk.append({"role": "user", "content": question})
        answers = list(agent.run(messages=talk))
        talk += answers[-1]
        turns.append((answers[-1][-1]["content"], len(answers)))
    return turns


async def dspy(base: str) -> Turns:
    import dspy as library

    model = library.LM(f"openai/{MODEL}", api_base=base, api_key=KEY, cache=False, num_retries=0)
    agent = library.ReAct("question, history: dspy.History -> answer", tools=[get_weather], max_iters=3)
    past: list[Any] = []
    with library.context(lm=model):
        for question in QUESTIONS:
            answer = await agent.acall(question=question, history=library.History(messages=past))
            past = [*past, {"question": question, "answer": answer.answer}]
    return [(turn["answer"], 1) for turn in past]


TALKS: dict[str, Callable[[str], Awaitable[Turns]]] = {
    "autogen": autogen,
    "dspy": dspy,
    "haystack": haystack,
    "llama-index": llama_index,
    "llm": llm,
    "mirascope": mirascope,
    "openai-agents": openai_agents,
    "qwen-agent": qwen_agent,
    "semantic-kernel": semantic_kernel,
    "smolagents": smolagents,
}

if __name__ == "__main__":
    name, base = sys.argv[1:]
    with redirect_stdout(sys.stderr):  # some show what they do
        turns = asyncio.run(TALKS[name](base))
    json.dump({"turns": turns}, sys.stdout)
