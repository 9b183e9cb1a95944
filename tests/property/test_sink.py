"""However a server cuts a chunked body, and a network the chunks: what arrives is what was sent."""

import asyncio
import itertools

from aiohttp.client_proto import ResponseHandler
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.client.reception import Reception
from harness.client.sink import receive
from harness.clock import MachineClock
from harness.values import Progress

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
HEADERS = (b"%x\r\n", b"%X\r\n", b"0%x\r\n", b"%x;why=1\r\n")
"""Ways to write a chunk's header; the short cut knows the first."""

# bytes that look like framing are likely, so that a cut in the wrong place shows
chunks = st.binary(min_size=1, max_size=300) | st.sampled_from(
    [b"\r\n", b"1\r\n", b"1\r\na\r\n", b"0\r\n\r\n"]
)
framed = st.lists(st.tuples(chunks, st.sampled_from(HEADERS)), min_size=1, max_size=12)


def written(body):
    return [header % len(chunk) + chunk + b"\r\n" for chunk, header in body]


def received(reads, *, compressed=False):
    """(the body's pieces, how many reads aiohttp's parser saw) of reads behind the head."""

    async def main():
        loop = asyncio.get_running_loop()
        protocol, pieces, seen = ResponseHandler(loop), [], []
        protocol.connection_made(asyncio.Transport())
        protocol.set_response_params(read_until_eof=True)
        protocol.data_received(HEAD)
        _, content = await protocol.read()

        def on_read(data, stamp):
            pieces.append(data)
            return Progress.SILENT

        reception = Reception(MachineClock(), on_read, loop.create_future(), began_ns=0)
        through = protocol.data_received
        protocol.data_received = lambda data: (seen.append(data), through(data))
        reception.protocol, reception.compressed = protocol, compressed
        reading = loop.create_task(receive(content, reception))
        await asyncio.sleep(0)
        for read in reads:
            protocol.data_received(read)
        await reading
        return [piece for piece in pieces if piece], len(seen)

    return asyncio.run(main())


@settings(deadline=None)
@given(body=framed, data=st.data())
def test_any_cut_gives_the_same_body(body, data):
    wire = b"".join(written(body)) + LAST
    cuts = data.draw(st.lists(st.integers(0, len(wire)), max_size=20))
    ends = sorted({*cuts, len(wire)} - {0})
    pieces, _ = received(wire[start:end] for start, end in itertools.pairwise([0, *ends]))
    assert b"".join(pieces) == b"".join(chunk for chunk, _ in body)


@settings(deadline=None)
@given(body=framed)
def test_one_chunk_a_read_gives_the_same_pieces(body):
    pieces, _ = received([*written(body), LAST])
    assert pieces == [chunk for chunk, _ in body]


def test_parser_sees_the_first_read_and_the_last_where_each_is_one_chunk():
    pieces, seen = received([*written([(b"data: %d\n\n" % i, HEADERS[0]) for i in range(50)]), LAST])
    assert len(pieces) == 50
    assert seen == 2


def test_parser_sees_all_of_a_compressed_body():
    """Its chunks are not the body's: the parser decompresses what is in them."""
    reads = [*written([(b"x", HEADERS[0])] * 9), LAST]
    assert received(reads, compressed=True)[1] == len(reads)
