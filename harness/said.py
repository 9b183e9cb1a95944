"""What a server says, made fit to be kept and shown: without the key, on one line, of bounded length.

Nothing that a server sent goes into a record before it has passed here.
"""

import json
import re

KEY_LENGTH_MIN = 8
"""A shorter one, such as `EMPTY`, is what servers without keys are given."""

_CUT_KEY_MIN = 6
"""So much of a key's beginning, at the end of a text that was cut, is taken for the key."""

GONE = "…"

# C0 and C1 steer a terminal; the others reorder what is read, or break its line
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def shown(text: str, *, length: int) -> str:
    """Escape what steers a terminal, and cut at `length` characters."""
    text = _CONTROL.sub(_escaped, text.encode("utf-8", "replace").decode())
    return text if len(text) <= length else text[: length - 1] + GONE


def without_key(text: str, key: str | None, *, cut: bool = False) -> str:
    """Take the key out, also as JSON spells it; a word too short for a key is none.

    cut: the text may have been cut already, in the midst of the key.
    """
    if key is None or len(key) < KEY_LENGTH_MIN:
        return text
    for spelling in (key, json.dumps(key)[1:-1]):
        text = text.replace(spelling, GONE)
        for end in range(len(spelling) - 1, _CUT_KEY_MIN - 1, -1) if cut else ():
            if text.removesuffix(GONE).endswith(spelling[:end]):
                return text.removesuffix(GONE)[:-end] + GONE
    return text


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
