"""Somebody at a frontend that uses the official AG-UI client, beside those of `tests/pairs/people.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tests.interop.client import Frontend, View
from tests.pairs.clients import Call, Seen
from tests.pairs.people import AguiPerson, Person, Question


class OfficialPerson(Person):
    """Sends its whole list, as the client keeps it."""

    route = AguiPerson.route
    dialect = AguiPerson.dialect

    def __init__(self, client: Frontend, tools: tuple[str, ...] = ()) -> None:
        super().__init__("", "", tools)
        self._client = client

    async def say(self, text: str, image: str | None = None) -> Seen:
        assert image is None
        return self._saw(await self._client.say(text, **self._more))

    async def answer(self, results: Mapping[str, str]) -> Seen:
        return self._saw(await self._client.answer(dict(results), **self._more))

    async def resume(self, payload: Any) -> Seen:
        answers = [{"interruptId": q.id, "status": "resolved", "payload": payload} for q in self.asked]
        return self._saw(await self._client.run(resume=answers, **self._more))

    async def leave(self, text: str) -> None:
        """Says this and goes away with the first words of the answer."""
        view = await self._client.say(text, abort_at="TEXT_MESSAGE_CONTENT", **self._more)
        assert view.last["code"] == "abort"

    @property
    def _more(self) -> dict[str, Any]:
        # Not quiet: it complains of failed runs.
        return {"tools": [t["function"] for t in self.tools], "quiet": False}

    def _saw(self, view: View) -> Seen:
        assert view.rejected is None, view.rejected
        self.asked = [Question(i["id"], i["metadata"]["dialect-bridge"]["payload"]) for i in view.interrupts]
        calls = [Call(i, name, orjson.dumps(arguments).decode()) for i, name, arguments in view.calls]
        self.seen = Seen(text=view.text, calls=calls, results=view.results, error=view.error)
        return self.seen
