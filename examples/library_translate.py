"""Translate a recorded stream to another dialect, without a server, a socket or an event loop.

Run it: `python examples/library_translate.py`
"""

from bridge import Translator, translate

RECORDED = b"""\
data: {"choices":[{"index":0,"delta":{"reasoning_content":"A greeting."}}]}

data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}

data: {"choices":[{"index":0,"delta":{"content":", world!"}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

"""


def main() -> None:
    # A whole recording in one call: the source is what was recorded, the target what comes out.
    told = translate(RECORDED, "openai-chat", "agentscope")
    print(told.decode())

    # The way back, and what was lost on it.
    translator = Translator("agentscope", "openai-chat")
    print((translator.feed(told) + translator.close()).decode())
    print("lost:", translator.lost)


if __name__ == "__main__":
    main()
