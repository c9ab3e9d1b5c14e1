"""Which test holds which rule that was observed on the reference nodes (sections 4 to 7), and how much of it it shows.

Where the bridge decides otherwise than these nodes, the rule here is what it does instead.
"""

from __future__ import annotations

import importlib
import inspect

import pytest

RULES: list[tuple[int, str, str, str]] = [
    # section, rule, module.test, what of it stands in the test
    (4, "a box describes arguments as a Python literal", "described.test_recorded_registrations", "schema_of_literal"),
    (
        4,
        "what such a literal says is read, never run",
        "described.test_what_cannot_be_read_is_any_object",
        "__import__",
    ),
    (
        4,
        "a node with one tool ignores the tool's name",
        "programs.test_our_tool_answers_recorded_calls_as_the_recorded_tool_did",
        "tool_call_other_name",
    ),
    (
        4,
        "a box that registers is listed as it registered",
        "server.test_a_toolbox_is_listed_as_it_registered",
        "== box",
    ),
    (
        4,
        "one gateway takes and forwards both generations",
        "gateway.test_tools_of_both_generations_are_kept_and_called_as_bytes",
        "toolbox_register",
    ),
    (4, "a registration shows its generation", "messages.test_registrations_tell_their_generation", "of_registration"),
    (4, "arguments are read as map and as JSON", "messages.test_arguments_of_both_generations_are_read", "arguments"),
    (4, "and written as the node takes them", "messages.test_arguments_are_written_as_the_node_takes_them", "toolbox"),
    (4, "one handler serves both in one server", "programs.test_a_toolbox_is_called_in_its_own_generation", "Gateway"),
    (4, "an update has two forms", "gateway.test_an_update_replaces_the_record", "node_info"),
    (4, "and forwarded as it came", "model_tools.test_a_box_is_called_by_the_name_of_its_tool", "request.arguments"),
    (4, "tool_name selects the tool in a box", "model_tools.test_a_box_is_called_by_the_name_of_its_tool", "tool_name"),
    # ------------------------------------------------------------------ sessions
    (
        5,
        "a session's id is invented",
        "programs.test_an_agent_answers_an_agent_through_a_gateway",
        "_session_",
    ),
    (5, "full duplex: a caller need not wait", "server.test_a_stop_right_behind_an_inquiry_lets_it_be_answered", '"b"'),
    (5, "STOP_RESPONSE unasked: the session is over", "backend.test_an_agent_may_end_by_itself", "STOP_RESPONSE"),
    (5, "OK without STOP_RESPONSE is no end", "backend.test_a_call_that_ends_without_a_stop_is_no_success", "None"),
    (
        5,
        "first its grace",
        "backend.test_an_agent_that_does_not_stop_is_canceled_after_its_grace",
        "grace",
    ),
    (5, "an inquiry may bring many answers", "backend.test_everything_until_the_end_is_the_answer", "one two three"),
    (
        5,
        "answers name a task of the agent's, CREATE, and no inquiry",
        "captures.test_an_answer_that_was_recorded",
        "text",
    ),
    (
        5,
        "START and STOP back to back: all is answered before the end",
        "server.test_a_stop_right_behind_an_inquiry_lets_it_be_answered",
        "Session closed",
    ),
    (5, "the same through a gateway", "server.test_agents_are_registered_listed_and_called", "Response to: bye"),
    (
        5,
        "the gateway ends its side behind a STOP_RESPONSE",
        "relay.test_a_stop_response_ends_the_session_although_the_agent_leaves_the_call_open",
        "StatusCode.OK",
    ),
    (5, "a first STOP_RESPONSE may be the answer", "backend.test_an_agent_may_end_by_itself", "STOP_RESPONSE"),
    (5, "the goodbye has a content, no answer", "backend.test_everything_until_the_end_is_the_answer", "STOP_RESPONSE"),
    (5, "a second START_QUEST holds", "hardness.test_odd_messages_are_taken_as_they_are_meant", '"START_QUEST", "two"'),
    (5, "a changed receiver is none", "hardness.test_odd_messages_are_taken_as_they_are_meant", 'receiver="other"'),
    (5, "what follows a STOP_QUEST is not answered", "hardness.test_odd_messages_are_taken_as_they_are_meant", "late"),
    (5, "a half-closed session goes on", "server.test_a_half_closed_session_ends_after_its_silence", "done_writing"),
    (5, "a relayed one, too", "relay.test_a_caller_who_has_said_everything_still_hears_everything", "done_writing"),
    (
        5,
        "until its caller's deadline",
        "relay.test_a_half_closed_session_is_open_until_its_callers_deadline",
        "DEADLINE_EXCEEDED",
    ),
    (5, "no message at all: ABORTED", "server.test_what_is_wrong_with_a_first_message", "Empty request stream"),
    (5, "not START_QUEST first", "server.test_what_is_wrong_with_a_first_message", "First message must be START_QUEST"),
    (5, "no session_id", "server.test_what_is_wrong_with_a_first_message", "Missing session_id in START_QUEST"),
    (5, "a receiver that is not there", "server.test_what_is_wrong_with_a_first_message", "Receiver not found"),
    (
        5,
        "a session_id that lives, at an agent",
        "server.test_a_session_id_that_lives_is_refused_and_free_again_afterwards",
        "is already registered",
    ),
    (
        5,
        "and at a gateway: nobody's answers are stolen",
        "relay.test_a_second_session_of_one_id_does_not_steal_the_answers_of_the_first",
        "INVALID_ARGUMENT",
    ),
    (
        5,
        "a session with a tool, a call of an agent: not found",
        "server.test_tools_are_called_and_their_own_status_passed_on",
        'receiver="adder"',
    ),
    (
        5,
        "a lost agent: its status goes on, and it is dropped",
        "relay.test_an_agent_whose_connection_breaks_is_forgotten",
        "UNAVAILABLE",
    ),
    (5, "kills: a cancel", "backend.test_a_canceled_turn_is_stopped_and_drained_not_canceled", "canceled"),
    (
        5,
        "kills: a cancel through a gateway",
        "hardness.test_an_agent_survives_a_caller_who_hangs_up_while_it_answers",
        "node.canceled",
    ),
    (5, "kills: anything behind STOP_QUEST", "relay.test_odd_messages_do_not_reach_an_agent_as_they_are", "late"),
    (5, "kills: another session_id", "relay.test_odd_messages_do_not_reach_an_agent_as_they_are", 'session="s9"'),
    (5, "kills: no content", "relay.test_odd_messages_do_not_reach_an_agent_as_they_are", "del empty.content"),
    (5, "a text item comes first", "backend.test_a_picture_stands_behind_a_text", "image"),
    # ------------------------------------------------------------------ the gateway
    (6, "an agent's id that is taken", "server.test_what_is_taken_is_refused", "Agent [chat] already registered."),
    (6, "a tool's", "server.test_a_tool_is_told_yes_or_that_its_name_is_taken", "Tool [adder] already registered."),
    (6, "an address that is taken", "server.test_what_is_taken_is_refused", "Address ["),
    (6, "a node is dialed first", "server.test_a_node_that_cannot_be_reached_is_refused_and_holds_up_nobody", "lost"),
    (6, "before that it is not found", "gateway.test_a_node_that_was_never_reached_leaves_no_trace", "not found"),
    (6, "an agent is told of all nodes, itself too", "server.test_agents_are_registered_listed_and_called", '"chat"]'),
    (6, "a tool of none", "server.test_a_tool_is_told_yes_or_that_its_name_is_taken", "RegisterToolResponse"),
    (6, "who is not there may leave: false", "server.test_beats_and_farewells", "[True, False, False]"),
    (6, "domain default lists all, another one its own", "gateway.test_domains", '"default"'),
    (6, "an unknown and an empty domain have none", "gateway.test_domains", '""'),
    (
        6,
        "silent for more than 30 s: forgotten",
        "gateway.test_nodes_that_are_silent_for_too_long_are_forgotten",
        "35.1",
    ),
    (6, "a beat of nobody's", "server.test_beats_and_farewells", "Node nobody not registered"),
    (6, "a beat", "server.test_beats_and_farewells", "Heartbeat received"),
    (6, "an update replaces", "gateway.test_an_update_replaces_the_record", "Node [a] updated successfully."),
    (6, "an update of nobody's", "gateway.test_an_update_replaces_the_record", "Agent [b] not registered."),
    (6, "a call of no tool", "server.test_tools_are_called_and_their_own_status_passed_on", "Receiver not found"),
    (6, "a tool's status is passed on", "server.test_tools_are_called_and_their_own_status_passed_on", "INTERNAL"),
    (6, "a tool is dropped when it is away", "hardness.test_a_tool_node_that_is_gone", '"UNAVAILABLE", "NOT_FOUND"'),
    (
        6,
        "a name that its box lacks is not asked for",
        "programs.test_a_toolbox_is_called_in_its_own_generation",
        "no tool",
    ),
    (6, "any sender is taken", "relay.test_any_sender_is_taken", "sender_id"),
    (6, "but where the server knows its users", "keys.test_every_method_asks_who_calls", "UNAUTHENTICATED"),
    (
        6,
        "a session and a tool call are beats",
        "gateway.test_a_session_and_a_tool_call_are_beats_of_their_sender",
        "ToolRequest",
    ),
    (
        6,
        "a node listens first",
        "programs.test_the_words_of_a_gateway_reach_the_program",
        'match="start"',
    ),
    (6, "what nobody knows is UNIMPLEMENTED", "server.test_an_unknown_method_is_unimplemented", "UNIMPLEMENTED"),
    # ------------------------------------------------------------------ tools
    (7, "a tool session's id, one for each client", "programs.test_an_agent_calls_a_function", '"tool_"'),
    (7, "an HTTP tool: URL, query, body", "programs.test_an_agent_calls_an_http_service", "page=2"),
    (
        7,
        "a result: No Error, and the text of it",
        "programs.test_our_tool_answers_recorded_calls_as_the_recorded_tool_did",
        "tool_call_ok",
    ),
    (7, "which is Python's str", "programs.test_a_result_is_the_text_that_python_makes_of_it", "{'a': None}"),
    (
        7,
        "a function that raises: an error, status OK",
        "programs.test_our_tool_fails_recorded_calls_as_the_recorded_tool_did",
        "tool_call_missing_argument",
    ),
    (7, "no content beside an error", "programs.test_what_a_function_refuses_is_the_answers_error", "content"),
    (
        7,
        "a failure outside of the function: INTERNAL",
        "programs.test_a_tool_may_handle_requests_itself_and_change_what_it_says",
        "Handling request failure",
    ),
    (7, "a tool gets texts", "messages.test_arguments_are_written_as_the_node_takes_them", '"1"'),
    (7, "is_error decides, not the message", "model_tools.test_is_error_decides", "is_error"),
]


@pytest.mark.parametrize(("section", "rule", "test", "shows"), RULES, ids=[f"{r[0]}-{r[1]}" for r in RULES])
def test_each_rule_has_a_test(section: int, rule: str, test: str, shows: str) -> None:
    module, _, name = test.partition(".")
    package = "tests.sdk.aip" if module == "programs" else __package__
    found = getattr(importlib.import_module(f"{package}.test_{module}"), name)
    assert shows in inspect.getsource(found), "its parameters count"
