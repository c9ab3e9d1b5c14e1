"""Events taken by their text alone mean what reading each in full would say - whatever the bytes are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Context, Frame, FrameLike
from bridge.model import Event, PartKind, Raw, TextDelta
from bridge.model.jsontext import loads
from bridge.toolkit import repeat
from bridge.toolkit.repeat import Repeat


class Reader:
    """A decoder that reads three fields: a text, which belongs to a part named by all other fields, `n` and `pad` not.

    What it cannot read it passes on, so that whatever is overlooked shows. `full` counts what was read in full.
    """

    def __init__(self, learns: bool = True) -> None:
        self._builder = Context("run", "thread", 1.0).builder()
        self._repeat = Repeat(self._builder)
        self._learns = learns
        self.texts: list[str] = []
        self.full = 0

    def feed(self, frames: list[FrameLike]) -> list[Event]:
        return self._repeat.feed(frames, self._read)

    def close(self) -> list[Event]:
        self._builder.close()
        return self._builder.take()

    def _read(self, data: bytes, name: str | None) -> None:
        self.full += 1
        try:
            event = loads(data)
        except ValueError:
            event = None
        if data == b"null":
            self._builder.end()
            return
        text = event.get("text") if isinstance(event, dict) else None
        if not isinstance(text, str):
            self._builder.emit(Raw("reader", [name, data]))
            return
        key = name, json.dumps({k: v for k, v in event.items() if k not in ("text", "n", "pad")})
        part = self._builder.open_part(key, "message", PartKind.TEXT)
        self._builder.delta(key, text)
        if text:
            self.texts.append(text)
        if self._learns:
            self._repeat.learn(event, ("text",), part, number="n", padding="pad", texts=self.texts)


def said(events: list[Event]) -> list[str]:
    return [e.text for e in events if isinstance(e, TextDelta)]


# ------------------------------------------------------------------ any bytes

words = st.text(st.characters(exclude_categories=()), max_size=4)
strings = words.map(json.dumps) | st.text(max_size=4).map(lambda text: json.dumps(text, ensure_ascii=False))
odd_texts = st.sampled_from(
    ['"a","text":"b"', '"a"},{"text":"b"', '["a"]', '""', '"a" ', ' "a"', '"a', 'a"', '"\\"', '"\t"', "", "null", "7",
     '"\\ud83d"', '"\\ude00"', '"a","n":5,"pad":"x"', '"\\u0000?"']
)  # fmt: skip
numbers = st.integers(1, 120).map(str) | st.sampled_from(
    ["0", "007", "-5", "+5", "1.5", "1e3", "99999999999999999999", '"5"', "null", "", "5 ", "\u0665", "1,2"]
)
paddings = st.sampled_from(
    ['"a"', '"bcd"', '"Ef1"', '""', '"a\\"b"', '"a","text":"q"', '"a\\u0041"', '"_"', '"\u00e4"', "5", '"a', 'a"', ""]
)
others = st.sampled_from(['"o":{"text":"s","n":4,"pad":"k"}', '"o":"\\"text\\":\\"z\\""', '"text":"twice"', '"n":3',
                          '"pad":"p"', '"o":["text"]', '"x\\"text":"z"', '"o":1'])  # fmt: skip


@st.composite
def shapes(draw: st.DrawFn) -> list[str]:
    """What an event is made of, in order: fields of their own and the places of the values that change."""
    fields = ["text", *draw(st.lists(st.sampled_from(["n", "pad"]), unique=True)), *draw(st.lists(others, max_size=2))]
    return draw(st.permutations(fields))


def written(shape: list[str], values: dict[str, str], space: str) -> bytes:
    fields = [f'"{f}":{space}{values[f]}' if f in values else f for f in shape]
    text = "{" + f",{space}".join(fields) + "}"
    return text.encode("utf-8", "surrogatepass")


@st.composite
def streams(draw: st.DrawFn) -> list[FrameLike]:
    """Events of a few shapes, mostly alike, some of them cut or changed in one byte."""
    known = draw(st.lists(st.tuples(shapes(), st.sampled_from(["", "", " "])), min_size=1, max_size=2))
    frames: list[FrameLike] = []
    for _ in range(draw(st.integers(3, 12))):
        shape, space = draw(st.sampled_from(known))
        values = {"text": strings, "n": st.integers(1, 120).map(str), "pad": st.sampled_from(['"a"', '"bC1"', '""'])}
        odd = draw(st.sampled_from(["", "", "", "text", "n", "pad", "bytes"]))
        values |= {k: v for k, v in {"text": odd_texts, "n": numbers, "pad": paddings}.items() if k == odd}
        data = written(shape, {name: draw(value) for name, value in values.items()}, space)
        if odd == "bytes":
            place = draw(st.integers(0, len(data)))
            data = data[:place] + draw(st.binary(max_size=2)) + data[place + draw(st.integers(0, 3)) :]
        name = draw(st.sampled_from([None, None, None, "e", "error"]))
        frames.append(data if name is None else Frame(data, name))
    return frames


@given(streams(), st.integers(1, 12))
def test_it_changes_nothing(frames: list[FrameLike], size: int) -> None:
    quick, full = Reader(), Reader(learns=False)
    for start in range(0, len(frames), size):
        assert quick.feed(frames[start : start + size]) == full.feed(frames[start : start + size])
    assert quick.texts == full.texts


# ------------------------------------------------------------------ what is taken, and what is not


def event(shape: str, text: str, n: int = 1000, pad: str = "x") -> bytes:
    return shape.replace("TEXT", json.dumps(text)).replace("N", str(n)).replace("PAD", json.dumps(pad)).encode()


SHAPES = [
    '{"text":TEXT}',
    '{"n":N,"a":1,"text":TEXT}',
    '{"n": N, "text": TEXT, "a": 1}',
    '{"a":1,"text":TEXT,"b":2,"n":N}',
    '{"n":N,"text":TEXT,"b":2,"pad":PAD}',
    '{"text":TEXT,"b":2,"pad":PAD,"c":3,"n":N}',
    '{"text":TEXT,"pad":PAD}',
]


@pytest.mark.parametrize("shape", SHAPES)
def test_only_the_first_two_of_a_kind_are_read_in_full(shape: str) -> None:
    reader = Reader()
    values = [("a", 1000, "x"), ("b", 1001, "y"), ('"\u00e9\\', 1002, ""), ("d\n", 9999, "Qr8f"), ("e", 5000, "z" * 40)]
    events = reader.feed([event(shape, *v) for v in values])
    assert said(events) == [v[0] for v in values]
    assert reader.texts == [v[0] for v in values]
    assert reader.full == 2


UNUSUAL = [
    '{"pad":PAD,"text":TEXT}',
    '{"text":TEXT,"n":N,"pad":PAD}',
    '{"n":N,"text":TEXT,"n":N}',
    '{"o":{"n":N},"text":TEXT}',
]
TEXTS = [
    '"b","text":"c"',
    '"b"},{"text":"c"',
    '["b"]',
    '""',
    ' "b"',
    '"b',
    '"\\"',
    '"\t"',
    "",
    "null",
    "7",
    '"\\ud83d"',
]
ODD = {
    '"b"': TEXTS,
    "1000": ["0999", "-999", "+999", "1.50", "10e2", "10 0", "1,00", '"10"', "null", "999", "10000", "\u0661\u0661"],
    '"x"': ['"_"', '"x\\"y"', '"x","text":"c"', '"\\u0041"', '"\u00e4"', "1", '"', "", '"x" ', "null"],
}


@pytest.mark.parametrize("shape", [*SHAPES, *UNUSUAL])
def test_what_only_looks_alike_is_read_in_full(shape: str) -> None:
    """Each value replaced by an odd one, and any of its bytes left out or replaced by others."""
    like = event(shape, "b")
    text = like.decode()
    odd = [text.replace(old, new, 1).encode() for old, news in ODD.items() for new in news if old in text]
    ends = range(len(like) + 1)
    odd += [like[:begin] + like[end:] for begin in ends for end in ends[begin + 1 :]]
    more = (b"0", b"5", b'"', b"\\", b"a", b'","')
    odd += [like[:place] + one + like[place + 1 :] for place in ends for one in more]
    quick, full = Reader(), Reader(learns=False)
    for data in odd:
        frames: list[FrameLike] = [like, like, data, like]
        assert quick.feed(frames) == full.feed(frames), data


@pytest.mark.parametrize("place", ["text", "o"])
def test_the_text_is_the_one_that_counts(place: str) -> None:
    """Another field of the same name stands before it, in an object or as the first of two."""
    first = '"text":OTHER' if place == "text" else '"o":{"text":OTHER}'
    frames = [b'{%b,"text":"a"}' % first.replace("OTHER", f'"{n}"').encode() for n in range(6)]
    assert said(Reader().feed(list(frames))) == ["a"] * 6


@pytest.mark.parametrize(("field", "values"), [("n", ["1", "1", "1", "2"]), ("pad", ['"1"', '"1"', '"1"', '"2"'])])
def test_the_number_and_the_letters_are_those_that_count(field: str, values: list[str]) -> None:
    frames: list[FrameLike] = [f'{{"o":{{"{field}":{v}}},"{field}":{values[0]},"text":"a"}}'.encode() for v in values]
    assert Reader().feed(list(frames)) == Reader(learns=False).feed(frames)


def test_a_text_that_is_the_probe_itself_is_not_learned() -> None:
    """Else what looks like it elsewhere would be taken for the text."""
    frames: list[FrameLike] = [b'{"o":{"text":"%d"},"text":"\\u0000?"}' % n for n in range(3)]
    frames.insert(1, b'{"o":{"text":"\\u0000?"},"text":"\\u0000?"}')
    assert said(Reader().feed(frames)) == ["\x00?"] * 4


def test_what_is_learned_is_forgotten_with_the_next_other_event() -> None:
    reader = Reader()
    like = b'{"text":"a"}'
    reader.feed([like, like, like, b"[]", like, like])
    assert reader.full == 4


def test_nothing_is_read_behind_the_end() -> None:
    like = b'{"text":"a"}'
    reader = Reader()
    reader.feed([like, b"null", like])
    assert reader.full == 2
    reader = Reader()
    reader.feed([like, like, like])
    reader.close()
    assert reader.feed([like, like]) == []


def test_learning_stops_where_no_two_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    reader.feed([b'{"id":%d,"text":"a"}' % n for n in range(6)])
    monkeypatch.setattr(repeat, "_find", None)
    assert said(reader.feed([b'{"id":7,"text":"b"}'])) == ["b"]


def test_a_long_event_is_not_learned() -> None:
    reader = Reader()
    reader.feed([b'{"text":"%b"}' % (b"a" * 5000)] * 4)
    assert reader.full == 4
