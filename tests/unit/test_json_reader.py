"""Reading JSON in steps: the same values as at once, the very text of each part, and nothing that is no JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_async_jobs.json_reader import JsonReader
from flask_async_jobs.payloads import NotJson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
SPACES = st.text(" \t\r\n", max_size=3)


def texts(document):
    reader = JsonReader(document)
    parts = {name: reader.text() for name in reader.members()}
    reader.end()
    return parts


@given(members=st.dictionaries(st.text(), VALUES, max_size=5), space=SPACES, ascii_only=st.booleans())
def test_each_member_is_given_as_its_very_text(members, space, ascii_only):
    written = {name: json.dumps(value, ensure_ascii=ascii_only, indent=1) for name, value in members.items()}
    parts = (f"{space}{json.dumps(name)}{space}:{space}{text}{space}" for name, text in written.items())
    assert texts(f"{space}{{{','.join(parts)}}}{space}") == written


@given(VALUES)
def test_a_value_is_what_the_standard_decoder_gives(value):
    reader = JsonReader(f" {json.dumps(value)} ")
    assert reader.value() == value
    reader.end()


@given(st.lists(VALUES, max_size=5))
def test_the_elements_of_a_list_come_one_by_one(values):
    reader = JsonReader(json.dumps(values))
    assert [(index, reader.value()) for index in reader.elements()] == list(enumerate(values))
    reader.end()


@given(st.dictionaries(st.text(), VALUES, min_size=1, max_size=3), st.data())
def test_a_text_that_ends_too_soon_is_no_json(members, data):
    whole = json.dumps(members)
    with pytest.raises(NotJson):
        texts(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{} {}", "{,}", '{"a"}', '{"a":}', '{"a":1,}', '{"a":1 "b":2}', "{a:1}", "{'a':1}"),
        *('{"a":NaN}', '{"a":-Infinity}', '{"a":tru}', '{"a":[}', '{"a":01}', '{"a":"\n"}', '{"a":1}x', "\ufeff{}"),
        '{"a":' + "[" * 100_000,
    ],
)
def test_what_is_no_object_is_refused(text):
    with pytest.raises(NotJson):
        texts(text)


def test_of_two_members_of_one_name_the_last_is_given():
    assert texts('{"a": 1, "a": 2}') == {"a": "2"}


def test_a_number_that_is_too_long_is_refused_when_it_is_read_and_not_when_it_is_passed():
    long = "9" * 5_000
    assert texts(f'{{"a": {long}}}') == {"a": long}
    with pytest.raises(NotJson):
        JsonReader(long).value()
