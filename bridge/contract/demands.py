"""What the API of a backend demands of a request.

`Capabilities` says what a dialect can express; `Demands` says which of those requests the API refuses. A dialect
declares both; `bridge.translation.requirements` brings every request to the demands before it is encoded.
A field at its default demands nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NO_RESULT = "No result was provided."
"""The text of a result that the client did not send and the API demands."""


class SystemPlace(StrEnum):
    """The places where system messages may stand.

    ANYWHERE: where the client put them. FIRST: before all others. ONE: a single message, before all others.
    """

    ANYWHERE = "anywhere"
    FIRST = "first"
    ONE = "one"


@dataclass(frozen=True, slots=True)
class SchemaDemands:
    """The subset of JSON Schema that the API takes.

    `object_root`: the root is `type: object`. `root_properties`: it has `properties`. `plain_root`: it has no `anyOf`,
    `oneOf`, `allOf`. `closed`: every object has `additionalProperties: false`. `forbidden`: keywords that are refused
    anywhere. `most_min_items`: the largest `minItems`. `inlined`: references are replaced by what they lead to.
    """

    object_root: bool = False
    root_properties: bool = False
    plain_root: bool = False
    closed: bool = False
    forbidden: frozenset[str] = frozenset()
    most_min_items: int | None = None
    inlined: bool = False


@dataclass(frozen=True, slots=True)
class Demands:
    """What one API demands. `own` names the extras that show a client of the same dialect.

    Such a client knows the API: of its requests only the history and what `own_tool_schemas` says are changed.
    """

    own: str = ""
    longest_call_id: int | None = None
    """Characters of a call id, at least 16: a longer id is cut, and ends with twelve digits that keep it unique."""
    results_follow_calls: bool = False
    """Each call has an id of its own, and after a turn with calls come exactly their results, nothing before these."""
    results_anywhere: bool = False
    """Only the number of results counts: other messages may stand between a call and its result."""
    results_in_order: bool = False
    """The results of a turn have the order of its calls."""
    stored_by: frozenset[str] = frozenset()
    """Fields of a client of the same dialect by which the server adds stored messages, with the calls of results."""
    one_message_per_turn: bool = False
    """All calls of a turn stand in one message of the assistant, and none of the assistant's follows before the
    results."""
    object_arguments: bool = False
    """The arguments of earlier calls are JSON objects."""
    no_blank_texts: bool = False
    """A text beside other parts has a visible character."""
    no_trailing_blank: bool = False
    """A last message of the assistant does not end with blanks."""
    system: SystemPlace = SystemPlace.ANYWHERE
    needs_user: bool = False
    """At least one message is not a system message."""
    message_names: str | None = None
    """The pattern that a whole name of a person or an agent must match; other characters become `_`."""
    longest_message_name: int | None = None
    media_types: bool = False
    """Media have registered types, those of images that of their bytes."""
    unique_tools: bool = False
    """No two tools have one name."""
    tool_schemas: SchemaDemands | None = None
    own_tool_schemas: SchemaDemands | None = None
    """Of tools of clients of the same dialect."""
    output_schemas: SchemaDemands | None = None
    most_stops: int | None = None
    """Stop sequences."""
    no_blank_stops: bool = False
    least_output: int | None = None
    """The smallest limit of an answer, in tokens."""
    most_temperature: float | None = None
    """The hottest temperature."""
    temperature_or_top_p: bool = False
    """A request has only one of both."""
    no_sampling_with_effort: bool = False
    """A request with a reasoning effort has neither temperature nor top_p."""
    metadata_needs_store: bool = False
    """Metadata is refused without `store: true`."""


NOTHING = Demands()
"""The demands of an API that takes every request of its dialect."""
