"""Filters that mean the same to Lance and to the services, judged from their text.

The services refuse, or translate, what Lance takes for something else: it ignores what follows a complete expression,
reads a name in double quotes as text, and a time with an offset as the clock's time in the column's zone. This process
reads by itself with a filter that has nothing of that kind; with any other the services read.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"\s+|(?P<operand>`(?:[^`]|``)+`|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|'(?:[^']|'')*')|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<operator><=|>=|<>|!=|[=<>+*/%])|(?P<mark>[(),.]|-(?!-))",
    re.ASCII,
)
#: One letter for each piece; any other word is an operand.
_LETTERS = dict.fromkeys(["and", "or", "between", "like", "in"], "=") | {"is": "=", "not": "n"}
#: Words with a meaning of their own where an operand may stand.
_OWN_MEANING = re.compile(r"array|case|cast|current_.*|exists|extract|interval|localtime.*|row|select|struct")
_PATH = re.compile(r"o(?:\.o)+")
#: What is one operand, of operands: a list or bracket, a negation, two of them with an operator between.
_OPERAND = re.compile(r"\(o(?:,o)*\)|(?<!o)[n-]+o|o(?:(?:n?=n?-?|-)o)+")


def is_plain(where: str) -> bool:
    """Return whether a filter is made of columns, numbers, text, operators, AND, OR, NOT, IN, IS, BETWEEN and LIKE."""
    letters, at = [], 0
    while at < len(where):
        token = _TOKEN.match(where, at)
        word = (token["word"] or "").lower() if token else ""
        if token is None or _OWN_MEANING.fullmatch(word):
            return False
        letter = _LETTERS.get(word, "o") if word else {"operand": "o", "operator": "="}.get(str(token.lastgroup))
        letters.append(letter or token["mark"] or "")
        at = token.end()
    rest, more = _PATH.sub("o", "".join(letters)), 1
    while more:
        rest, more = _OPERAND.subn("o", rest)
    return rest == "o"
