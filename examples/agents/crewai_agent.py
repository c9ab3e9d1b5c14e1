"""A crew of CrewAI: `pip install crewai`. A crew works through its tasks; the conversation is their input."""

import os
from collections.abc import AsyncIterator

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from crewai.types.streaming import StreamChunkType

from bridge import Event, Request, TextDelta, UsageReported

MODEL = LLM(
    model=f"openai/{os.environ.get('OPENAI_MODEL', 'qwen3:8b')}",
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:11434/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
    stream=True,
)


@tool("get_weather")
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


def make_crew() -> Crew:
    friday = Agent(
        role="Assistant", goal="Answer the user", backstory="You are helpful.", llm=MODEL, tools=[get_weather]
    )
    task = Task(
        description="Answer the last message of this conversation:\n{conversation}",
        expected_output="The answer, as the user reads it",
        agent=friday,
    )
    return Crew(agents=[friday], tasks=[task], stream=True)


async def run(request: Request) -> AsyncIterator[Event]:
    said = "\n".join(f"{each.role}: {each.text}" for each in request.messages if each.text)
    stream = await make_crew().akickoff(inputs={"conversation": said})
    async for chunk in stream:
        if chunk.chunk_type is StreamChunkType.TEXT and chunk.content:
            yield TextDelta(chunk.task_id, chunk.content)
    tokens = stream.result.token_usage
    yield UsageReported(tokens.prompt_tokens, tokens.completion_tokens)
