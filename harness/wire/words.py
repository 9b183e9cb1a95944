"""Prompt text of a known length: words that follow from a block's id alone.

Equal ids give equal words, so prefixes are equal where ids are; a longer block of the same id
begins with the shorter one. Each word is common and short, about one token with its leading blank
in the usual BPE vocabularies. Two disjoint lists take turns, so no word ever repeats its neighbour.
"""

from collections import OrderedDict
from hashlib import shake_128

import orjson

from harness.values import Block

_ODD = """
able about above across action added after again against age ago air all almost alone along already also
always among amount animal answer any appear apple area arm army around arrive art as ask at attack attempt
aunt away baby back bad bag ball bank bar base basic bath be bear beat beautiful became because become bed
been before began begin behind being believe below beside best better between big bill bird bit black block
blood blow blue board boat body bone book born both bottom bought box boy brain branch bread break bridge
bright bring broad broke brother brought brown build built burn business busy but buy by call came camp can
capital captain car card care carry case cast cat catch cattle caught cause cell cent center central century
certain chain chair chance change character charge chart check chief child children choice choose church
circle city claim class clean clear climb clock close cloth cloud coast coat cold collect college color
column come common company compare complete condition consider contain control cook cool copy corn corner
correct cost cotton could count country couple course court cover cow create credit cross crowd cry culture
cup current cut daily dance danger dark data date daughter day dead deal dear death decide deep degree
demand depend describe desert design despite detail develop device die differ dinner direct discuss sun sure
table tail take talk tall taste teach team tell ten test thank then thing think third thought three through
time tiny today told took top total touch
"""

_EVEN = """
distance divide do doctor does dog dollar done door double down draw dream dress drink drive drop dry due
during each early earth east easy eat edge education effect effort egg eight either electric else empty end
enemy energy engine enjoy enough enter entire equal even evening event ever every exact example except
excite exercise expect experience experiment eye face fact fair fall family famous far farm fast father
favor fear feel feet fell felt few field fight figure fill final find fine finger finish fire first fish fit
five flat floor flow flower fly follow food foot for force foreign forest form forward found four free fresh
friend from front fruit full fun game garden gas gather gave general gentle get girl give glad glass go gold
gone good got govern grand grass gray great green grew ground group grow guess guide gun had hair half hand
happen happy hard has hat have he head health hear heart heat heavy held help her here high hill him his
history hit hold hole home hope horse hot hotel hour house how huge human hundred hunt hurry ice idea if
imagine in inch include indeed industry insect instead interest into iron is island it job join jump just
keep kept key kill kind king knew know labor lady lake land language large last late laugh law lay lead
learn least leave led left leg length less let letter level lie life light like line list listen little live
long look lost love low machine made main make
"""

ODD, EVEN = tuple(_ODD.split()), tuple(_EVEN.split())
"""256 words each: one for every value of a byte."""

MAX_CACHED_BYTES = 64 * 1024 * 1024
"""A long history is made once, not at every call; this bounds what is kept of all of them."""


def words(block_id: str, tokens: int) -> str:
    """Make `tokens` words, parted by blanks."""
    stream = shake_128(block_id.encode()).digest(tokens) if tokens else b""
    text = [ODD[byte] for byte in stream]
    text[1::2] = [EVEN[byte] for byte in stream[1::2]]
    return " ".join(text)


class BlockTexts:
    """The text of blocks as the inside of a JSON string; made texts are kept, the oldest go first."""

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._made: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self.bytes = 0

    def json(self, block: Block) -> bytes:
        """Return the block's own text, or its words; without the quotes, so that blocks can be joined."""
        if block.text is not None:
            return orjson.dumps(block.text)[1:-1]
        key = (block.id, block.tokens)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = words(block.id, block.tokens).encode()
            self.bytes += len(made)
            while self.bytes > self._max_bytes:
                self.bytes -= len(self._made.popitem(last=False)[1])
        else:
            self._made.move_to_end(key)
        return made
