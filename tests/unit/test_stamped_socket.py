"""Stamps of single reads, on real loopback sockets; clocks that jump are handed in."""

import contextlib
import select
import socket
import struct
import sys
import time

import pytest

from harness.client.stamped_socket import READ_BYTES, WallOffset, by_fileno, record_end, stamped
from harness.clock import monotonic_ns, realtime_ns

S = 1_000_000_000
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's stamps are Linux's")


@pytest.fixture
def pair():
    """(stamped client, server's plain socket)."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = stamped((socket.AF_INET, socket.SOCK_STREAM, 0, "", ()))
        with contextlib.suppress(BlockingIOError):
            client.connect(listener.getsockname())
        server, _ = listener.accept()
        with client, server:
            yield client, server


def arrived(client, server, data):
    """Send and wait until it lies in the client's queue; returns the times around it."""
    before = monotonic_ns()
    server.sendall(data)
    select.select([client], [], [], 5)
    return before, monotonic_ns()


def warm(client, server):
    """The kernel begins to stamp a little after it is asked for the first time; later if it is busy."""
    for _ in range(2000):
        arrived(client, server, b"w")
        reads = client.loop_reads
        client.recv(65_536)
        if client.loop_reads == reads:
            return
        time.sleep(0.001)
    pytest.fail("the kernel stamps nothing")


def record(payload, kind=23):
    return struct.pack(">BHH", kind, 0x0303, len(payload)) + payload


@linux
@pytest.mark.parametrize("into", [False, True], ids=["recv", "recv_into"])
def test_stamp_is_of_the_arrival_and_not_of_the_read(pair, into):
    client, server = pair
    warm(client, server)
    before, after = arrived(client, server, record(b"data"))
    while monotonic_ns() < after + 20_000_000:
        pass
    reads = client.loop_reads
    if into:
        buffer = bytearray(100)
        assert client.recv_into(memoryview(buffer)) == 9
    else:
        assert client.recv(262_144) == record(b"data")
    assert before - 20_000 <= client.arrival_ns <= after
    assert client.loop_reads == reads


@linux
def test_stamp_of_a_read_is_that_of_its_newest_byte(pair):
    client, server = pair
    warm(client, server)
    arrived(client, server, b"first")
    before, after = arrived(client, server, b"second")
    assert client.recv(262_144) == b"firstsecond"
    assert before - 20_000 <= client.arrival_ns <= after


@linux
def test_full_reads_go_on_to_the_end_of_the_queue(pair):
    client, server = pair
    warm(client, server)
    data = bytes(range(256)) * (2 * READ_BYTES // 256) + b"end"
    arrived(client, server, data[:-3])
    before, after = arrived(client, server, data[-3:])
    assert client.recv(262_144) == data
    assert before - 20_000 <= client.arrival_ns <= after


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
def test_end_behind_a_full_read_is_told_after_it(pair, reset):
    client, server = pair
    data = b"x" * READ_BYTES
    arrived(client, server, data)
    if reset:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    assert client.recv(262_144) == data
    if reset:
        with pytest.raises(ConnectionResetError):
            client.recv(262_144)
    else:
        assert client.recv(262_144) == b""


def test_read_that_stops_before_the_end_of_the_queue_is_not_the_kernels_word(pair):
    client, server = pair
    warm(client, server)
    arrived(client, server, b"x" * 50)
    reads = client.loop_reads
    assert len(client.recv(20)) == 20
    assert client.loop_reads == reads + 1
    assert client.stopped
    assert len(client.recv(262_144)) == 30
    assert not client.stopped


def test_without_an_option_the_loop_stamps(pair):
    client, server = pair
    client.setsockopt(socket.SOL_SOCKET, 35, 0)
    _, after = arrived(client, server, b"x")
    reads = client.loop_reads
    client.recv(262_144)
    assert client.arrival_ns >= after
    assert client.loop_reads == reads + 1
    assert client.stopped  # the time of a read is a bound, not an arrival


def test_end_of_stream_is_no_read(pair):
    client, server = pair
    reads, arrival = client.loop_reads, client.arrival_ns
    server.close()
    select.select([client], [], [], 5)
    assert client.recv(262_144) == b""
    assert (client.loop_reads, client.arrival_ns) == (reads, arrival)


class Clocks:
    """The machine's clocks, with a wall clock that a test can set."""

    def __init__(self):
        self.step_ns = 0

    def wall(self):
        return realtime_ns() + self.step_ns


@linux
@pytest.mark.parametrize("step_ns", [-S, S, -1_000_000, 1_000_000], ids=["-1 s", "+1 s", "-1 ms", "+1 ms"])
def test_m27_a_wall_clock_that_was_set_is_found(pair, step_ns):
    client, server = pair
    clocks = Clocks()
    client.watch(WallOffset(monotonic_ns, clocks.wall))
    warm(client, server)
    _, after = arrived(client, server, b"old")
    clocks.step_ns = step_ns
    reads = client.loop_reads
    client.recv(262_144)
    assert client.loop_reads == reads + 1
    assert client.arrival_ns >= after


@linux
def test_a_stamp_from_the_future_or_from_before_the_last_read_is_not_believed(pair):
    client, server = pair
    warm(client, server)
    for shift in (-10 * S, 10 * S):
        wall = WallOffset()
        client.watch(wall)
        wall.ns += shift
        client._offset_ns = wall.ns
        wall._realtime = lambda shift=shift: realtime_ns() + shift
        _, after = arrived(client, server, b"x")
        reads = client.loop_reads
        client.recv(262_144)
        assert client.loop_reads == reads + 1
        assert client.arrival_ns >= after


def test_offset_is_measured_between_two_close_readings():
    readings = iter([0, 900, 1000, 1010, *[2000, 2900] * 6])  # one tight pair: 1000..1010
    offset = WallOffset(lambda: next(readings), lambda: 5000)
    assert offset.ns == 5000 - 1000 - 5


def test_held_up_between_two_readings_is_no_step():
    wall = iter([S] * 8 + [S + 5_000_000] + [S] * 8)  # measured; the check, 5 ms late; measured again
    offset = WallOffset(lambda: 0, lambda: next(wall))
    offset.now_ns()
    assert offset.ns == S
    assert next(wall, None) is None


@pytest.mark.parametrize(
    ("stream", "end"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(record(b"abc"), 8, id="one record"),
        pytest.param(record(b"abc") * 2, 16, id="two records"),
        pytest.param(record(b"abc")[:-1], 8, id="open record"),
        pytest.param(record(b"abc") + b"\x17\x03", 13, id="open header"),
        pytest.param(b"HTTP/1.1 400", -1, id="no TLS"),
        pytest.param(b"\x17\x03\x03\xff\xff", -1, id="too long for a record"),
    ],
)
def test_record_end(stream, end):
    assert record_end(memoryview(stream)) == end


def test_tls_read_waits_for_the_rest_of_a_record(pair):
    client, server = pair
    whole, rest = record(b"first"), record(b"second")
    view = memoryview(bytearray(1000))
    arrived(client, server, whole + rest[:7])
    with pytest.raises(BlockingIOError):
        client.recv_into(view)
    arrived(client, server, rest[7:])
    view[:] = bytes(1000)  # asyncio promises nothing about its buffer between two calls
    assert bytes(view[: client.recv_into(view)]) == whole + rest


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
def test_tls_bytes_that_were_held_come_out_before_the_end(pair, reset):
    client, server = pair
    view = memoryview(bytearray(1000))
    arrived(client, server, record(b"first") + b"\x17\x03")
    with pytest.raises(BlockingIOError):
        client.recv_into(view)
    if reset:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    select.select([client], [], [], 5)
    reads = client.loop_reads
    assert client.recv_into(view) == 12
    assert client.loop_reads == reads + 1
    if reset:
        with pytest.raises(ConnectionResetError):
            client.recv_into(view)
    else:
        assert client.recv_into(view) == 0


def test_what_is_no_tls_is_handed_out_as_it_comes(pair):
    client, server = pair
    view = memoryview(bytearray(1000))
    arrived(client, server, b"HTTP/1.1 400 Bad Request")
    assert client.recv_into(view) == 24
    assert client.loop_reads > 0


@pytest.mark.parametrize("size", [100, 15], ids=["inside a record", "behind a whole record"])
def test_full_buffer_is_handed_out_as_a_read_that_stopped(pair, size):
    client, server = pair
    view = memoryview(bytearray(20))
    arrived(client, server, record(b"x" * size) + record(b"y"))
    reads = client.loop_reads
    assert client.recv_into(view) == 20
    assert client.stopped
    assert client.loop_reads == reads + 1


def test_socket_is_found_by_its_number(pair):
    client, _ = pair
    assert by_fileno(client.fileno()) is client
