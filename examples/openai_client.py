"""The `openai` package against a running bridge.

    pip install openai
    make run                              # in another terminal
    python examples/openai_client.py

BRIDGE_URL names another server than http://127.0.0.1:8080, BRIDGE_API_KEY the key where the bridge asks for one.
"""

import os
from typing import Any

from openai import OpenAI
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam

WEATHER: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def main() -> None:
    base = os.environ.get("BRIDGE_URL", "http://127.0.0.1:8080")
    with OpenAI(base_url=f"{base}/v1", api_key=os.environ.get("BRIDGE_API_KEY", "unused")) as client:
        print("models:", [model.id for model in client.models.list()])

        question: ChatCompletionMessageParam = {"role": "user", "content": "reasoning"}
        for chunk in client.chat.completions.create(model="demo", messages=[question], stream=True):
            delta = chunk.choices[0].delta
            print(getattr(delta, "reasoning_content", None) or delta.content or "", end="")
        print()

        # A tool call, its result, and the answer that follows.
        conversation: list[ChatCompletionMessageParam] = [{"role": "user", "content": "tool"}]
        asked = client.chat.completions.create(model="demo", messages=conversation, tools=[WEATHER]).choices[0].message
        for call in asked.tool_calls or ():
            if call.type == "function":
                print("calls:", call.function.name, call.function.arguments)
                said: Any = asked.to_dict()
                conversation += [said, {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 C"}]
        answer = client.chat.completions.create(model="demo", messages=conversation, tools=[WEATHER])
        print("says:", answer.choices[0].message.content)


if __name__ == "__main__":
    main()
