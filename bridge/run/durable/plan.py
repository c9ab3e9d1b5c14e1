"""What is stored of a run so that any process can drive it, and any reader can replay it byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from bridge.contract import Context, StoredResponses
from bridge.model import Request, RunStarted
from bridge.model.dump import dump, load_request
from bridge.stores.rows import read, write

FORMAT = 1
"""Of the text of a plan. It grows with every field that a process has to know to drive the run: an older process leaves
the run to a newer one."""


@dataclass(slots=True)
class RunPlan:
    """The stored context of a run.

    `route` and `front` are the mount path and the dialect of the request. The ids in the stream are made from `run_id`.
    `forwarded` are client headers for the backend. If `eager`, readers see the head of the run before the backend
    answers. `model` is the name to show where the backend names none. The run fails after `limit` seconds, if not
    earlier by its backend's timeouts. If `background`, the run produces a stored response
    (`bridge.run.durable.answer_stream`) that continues the response `previous`.
    """

    route: str
    front: str
    run_id: str
    created_at: float
    request: Request
    model: str | None = None
    eager: bool = False
    request_id: str | None = None
    forwarded: dict[str, str] = field(default_factory=dict)
    background: bool = False
    previous: str | None = None
    limit: float | None = None

    def context(self, options: object) -> Context:
        """Return a new context, the same for each reader."""
        request = self.request
        stored_responses = (
            StoredResponses(wanted=True, previous=self.previous, background=True) if self.background else None
        )
        return Context(
            self.run_id,
            request.thread_id,
            self.created_at,
            options,
            self.model,
            request,
            stored_responses=stored_responses,
        )

    def head(self) -> RunStarted:
        """Return the first event of a run that ends before it begins."""
        return RunStarted(self.run_id, self.request.thread_id, self.request.model, self.created_at)

    def dump(self) -> str:
        """Return the plan as a JSON object. Fields are named, as another version of the bridge may read it."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return write({**values, "request": dump(self.request)})

    @classmethod
    def load(cls, text: str) -> RunPlan:
        """Return the plan that `dump` wrote. Raises `ValueError` for anything else, such as one of a newer version."""
        try:
            values = read(text)
            return cls(**{**values, "request": load_request(values["request"])})
        except (TypeError, KeyError) as error:
            raise ValueError("expected the plan of a run") from error
