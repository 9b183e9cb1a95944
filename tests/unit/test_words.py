"""Prompt text of a known length, the same wherever the id is the same."""

from itertools import pairwise

import orjson
import pytest

from harness.values import Block, Role
from harness.wire.words import EVEN, ODD, BlockTexts, words


def test_there_are_512_different_short_words():
    assert len(set(ODD) | set(EVEN)) == 512
    assert len(ODD) == len(EVEN) == 256
    assert all(
        word.isascii() and word.isalpha() and word.islower() and len(word) <= 10 for word in ODD + EVEN
    )


@pytest.mark.parametrize("tokens", [0, 1, 2, 7, 24_000])
def test_as_many_words_as_tokens(tokens):
    assert len(words("a", tokens).split()) == tokens


def test_words_follow_from_the_id_alone():
    assert words("session-1", 4) == "being famous clock hill"
    assert words("a", 500) != words("b", 500)
    assert words("a", 500).startswith(words("a", 77) + " ")


def test_no_word_repeats_its_neighbour_and_all_are_used():
    text = words("a", 24_000).split()
    assert all(one != other for one, other in pairwise(text))
    assert len(set(text)) == 512


def block(id_, tokens, text=None):
    return Block(id=id_, tokens=tokens, role=Role.USER, text=text)


def test_own_text_wins_and_is_escaped():
    assert BlockTexts().json(block("a", 5, 'said "yes"\n✓')) == orjson.dumps('said "yes"\n✓')[1:-1]
    assert BlockTexts().json(block("a", 5)) == words("a", 5).encode()


def test_made_texts_are_kept_within_the_bound():
    texts = BlockTexts(max_bytes=10_000)
    first = texts.json(block("a", 500))
    for n in range(50):
        texts.json(block(f"b{n}", 500))
        assert texts.json(block("a", 500)) is first  # used again and again, so it stays
        assert texts.bytes <= 10_000
    for n in range(5):
        texts.json(block(f"c{n}", 500))
    assert texts.json(block("a", 500)) is not first
    assert len(texts.json(block("big", 5000))) > 10_000
    assert texts.bytes == 0
