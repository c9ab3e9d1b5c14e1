"""What is kept of a run so that any process can drive it, and any reader can replay it byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from bridge.codec import Context, StoredResponses
from bridge.model import Request, RunStarted
from bridge.model.dump import dump_request, load_request
from bridge.stores.rows import read, write


@dataclass(slots=True)
class RunPlan:
    """The run's context. `route` and `front` are the mount path and the dialect of the request, `run_id` makes the ids
    inside the stream, `forwarded` are client headers for the backend.

    `eager`: readers see the head of the run before the backend has answered. `model` is the name to show a client when
    the backend does not name one. `limit`: seconds after which the run is given up, beside its backend's timeouts.
    `background`: the run produces a stored response (`bridge.runs.responses`) that continues the response `previous`.
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
        """A context that is the same for each reader, as if he were the first."""
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
        """The first event, for a run that ends before it began."""
        return RunStarted(self.run_id, self.request.thread_id, self.request.model, self.created_at)

    def dump(self) -> str:
        """The plan as a JSON object: by name, since a plan may be read by another version than wrote it."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return write({**values, "request": dump_request(self.request)})

    @classmethod
    def load(cls, text: str) -> RunPlan:
        """The plan that `dump` wrote. Raises `ValueError` for anything else, such as one of a newer version."""
        try:
            values = read(text)
            return cls(**{**values, "request": load_request(values["request"])})
        except (TypeError, KeyError) as error:
            raise ValueError("expected the plan of a run") from error
