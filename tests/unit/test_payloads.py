"""JSON is kept exactly, and equal values have one fingerprint."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_async_jobs import payloads
from flask_async_jobs.payloads import NotJson, Unstorable, encode, fingerprint, parse

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_what_is_encoded_is_parsed_as_the_same_value(value):
    assert parse(encode(value)) == value


@given(json_values)
def test_equal_values_have_one_fingerprint_whatever_their_text(value):
    assert fingerprint(parse(encode(value))) == fingerprint(value)


@pytest.mark.parametrize(
    "number", ["45.00", "100.00", "1200.00", "19.99", "9007199254740993", "1" + "0" * 400, "1E+400"]
)
def test_a_number_keeps_its_decimal_text(number):
    assert encode(parse(f'{{"n":{number}}}')) == f'{{"n":{number}}}'


@pytest.mark.parametrize(
    "same", [("45", "45.0", "45.00", "4.5e1"), ("0", "-0", "-0.0", "0e7"), ("1e400", "1" + "0" * 400)]
)
def test_numbers_of_one_value_have_one_fingerprint(same):
    assert len({fingerprint(parse(f"[{text}]")) for text in same}) == 1


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("[1,2]", "[2,1]"),
        ("1", "1.0000000000000000000001"),
        ("1", "true"),
        ('"1"', "1"),
        ("null", "{}"),
        ("[]", "{}"),
        ("1", "-1"),
    ],
)
def test_different_values_have_different_fingerprints(a, b):
    assert fingerprint(parse(a)) != fingerprint(parse(b))


def test_the_order_of_members_does_not_matter():
    assert fingerprint(parse('{"a":1,"b":{"x":1,"y":2}}')) == fingerprint(
        parse('{ "b": {"y":2,"x":1.0}, "a": 1.00 }')
    )


@pytest.mark.parametrize("text", [r'"\u0000"', r'"\ud800"', r'{"\u0000":1}', r'["a\udfff"]'])
def test_text_that_no_database_stores_is_refused(text):
    with pytest.raises(Unstorable):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        "Infinity",
        "-Infinity",
        "[" * 101 + "]" * 101,
        "[" * 100_000,
        "1" * 5_000,
        "1e5000",
        "1e99999999999999999999",
    ],
)
def test_what_is_not_json_or_too_large_to_handle_is_refused(text):
    with pytest.raises(NotJson):
        parse(text)


def _cycle():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), Decimal("NaN"), b"x", {1: 2}, {1, 2}, object(), iter([]), _cycle(), 10**5_000],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_is_not_json_cannot_be_encoded(value):
    with pytest.raises(NotJson):
        encode(value)


def test_a_decimal_and_a_float_are_written_with_their_own_digits():
    assert encode([Decimal("100.00"), 0.1, 1e22, True, None, ("x",)]) == '[100.00,0.1,1E+22,true,null,["x"]]'


def test_a_digest_has_22_characters():
    assert len(payloads.digest("x")) == 22
