"""Requests as values."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from bridge.model import Message, Request, Text


def test_a_copy_holds_the_very_things_of_every_field() -> None:
    held: dict[str, Any] = {field.name: object() for field in fields(Request)}
    copy = Request(**held).copy()
    assert {name: getattr(copy, name) for name in held} == held


def test_a_copy_is_changed_alone() -> None:
    request = Request([Message("user", [Text("hi")])], model="one")
    copy = request.copy()
    copy.model = "two"
    assert (request.model, copy.model) == ("one", "two")
