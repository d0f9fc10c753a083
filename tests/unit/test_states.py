"""Names, failures and keys: the small pure rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_async_jobs import InvalidIdempotencyKey, JobError, JobStatus
from flask_async_jobs.states import is_type_name, storable
from flask_async_jobs.submission import checked_owner, read_idempotency_key


class Unprintable:
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize("name", ["accounts", "a", "A.b-c_9", "x" * 64, "."])
def test_a_type_name_is_made_of_letters_digits_dots_dashes_and_underscores(name):
    assert is_type_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 65,
        "a b",
        "a/b",
        "ä",
        "a\n",
        "3f0b8a54-6f0e-4d0c-9a57-0a8f4f6f2c11",
        "3F0B8A54-6F0E-4D0C-9A57-0A8F4F6F2C11",
    ],
)
def test_a_type_name_is_neither_anything_else_nor_a_uuid(name):
    assert not is_type_name(name)


@given(st.text(), st.integers(0, 50))
def test_stored_text_holds_neither_nul_nor_surrogates_and_is_cut(text, limit):
    kept = storable(text, limit)
    assert len(kept) <= limit
    assert "\0" not in kept
    kept.encode()


@pytest.mark.parametrize("title", ["", "  ", None, Unprintable()])
def test_a_failure_without_a_title_becomes_job_failed(title):
    assert JobError.of("" if title is None else title).title == "Job failed"


def test_a_failure_is_cut_to_what_the_columns_hold():
    error = JobError.of("t" * 300, "d" * 3_000, "c" * 100)
    assert (len(error.title), len(error.detail), len(error.code)) == (256, 2_000, 64)


def test_a_failure_without_a_code_has_the_general_one():
    assert JobError.of("x").code == "job-failed"


def test_three_states_are_terminal():
    assert [status for status in JobStatus if status.is_terminal] == ["COMPLETED", "FAILED", "CANCELLED"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a", "a"),
        ('"a"', "a"),
        ("x" * 255, "x" * 255),
        ('"a\\"b\\\\c"', 'a"b\\c'),
        ('a"b', 'a"b'),
        ("a,b", "a,b"),
        ("!~", "!~"),
    ],
)
def test_a_key_may_be_bare_or_quoted(text, key):
    assert read_idempotency_key(text) == key


@pytest.mark.parametrize(
    "text", ["", '""', '"', "x" * 256, "a b", '"a b"', "café", "a\tb", "a\0", '"a","b"', '"a', "\x7f"]
)
def test_any_other_key_is_refused(text):
    with pytest.raises(InvalidIdempotencyKey):
        read_idempotency_key(text)


def test_no_owner_is_stored_as_empty_text():
    assert checked_owner(None) == checked_owner("") == ""
    assert checked_owner("x" * 255) == "x" * 255


@pytest.mark.parametrize("owner", ["x" * 256, "a\0", "\ud800", 7])
def test_an_owner_that_no_column_holds_is_refused(owner):
    with pytest.raises(ValueError, match="not an owner"):
        checked_owner(owner)
