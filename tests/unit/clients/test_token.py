"""Tokens that stay, and sources of tokens."""

from __future__ import annotations

import pytest

from leman._wire.credentials import Token
from leman.errors import InvalidArgument


def test_a_text_stays():
    token = Token("t")
    assert token() == "t"
    assert not token.renew()
    assert Token(None)() == ""


def test_a_source_is_asked_when_a_token_is_needed_and_when_it_is_refused():
    given = iter(["first", "second"])
    token = Token(lambda: next(given))
    assert token() == token() == "first"
    assert token.renew()
    assert token() == "second"


@pytest.mark.parametrize("wrong", [7, lambda: None, "", lambda: ""])
def test_what_gives_no_token_is_refused(wrong):
    """An empty one counted as none: anyone who meant to show one called as no one."""
    with pytest.raises(InvalidArgument, match="token"):
        Token(wrong)()
