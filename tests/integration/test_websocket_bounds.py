"""Bounds of events over WebSocket, plain and TLS, against the times at which a server really sent them.

The server is a thread with blocking sockets; it reads its clock before each write. So event i left between
that reading and the one before event i + 1, and on loopback the kernel stamps its arrival inside that write.
"""

import asyncio
import json
import socket
import ssl
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import trustme

from harness.client.session import Endpoint
from harness.client.watchdog import CallLimits
from harness.client.websocket import WebSocketExchange
from harness.clock import MachineClock, monotonic_ns
from harness.values import Block, Request, Role, StampClock
from harness.wire import DIALECTS
from harness.wire.websocket import in_lane, lane_of
from tests.websocket_server import accepted, frame

RESPONSES = DIALECTS["openai-responses"]
STREAMS, EVENTS, EVERY_S = 6, 80, 0.003
US = 1000
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's stamps are Linux's")


@pytest.fixture
def certificate():
    """(server's context, client's context)"""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


def read_until(sock, mark):
    data = b""
    while mark not in data:
        data += sock.recv(65_536)
    return data


def completed(name):
    return frame(json.dumps({"type": "response.completed", "response": {"id": name}}).encode())


def stream(sock, name):
    """Upgrade, wait for the question, and send events; some of them end with the write of the next one."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(accepted(read_until(sock, b"\r\n\r\n")))
    sock.recv(65_536)
    sent, left = [], b""
    for number in range(EVENTS):
        sent.append(monotonic_ns())
        event = {
            "type": "response.output_text.delta",
            "item_id": "m",
            "output_index": 0,
            "delta": f"{number} ",
        }
        data = left + frame(json.dumps(event).encode())
        left = b""
        if number % 7 == 3:
            data, left = data[:-9], data[-9:]
            sent[-1] = None
        sock.sendall(data)
        time.sleep(EVERY_S)
    sent.append(monotonic_ns())
    sock.sendall(left + completed(name))
    sent.append(monotonic_ns())
    sock.recv(1)
    sock.close()
    return sent


def served(listener, tls):
    with ThreadPoolExecutor(STREAMS) as pool:
        streams = {}
        for number in range(STREAMS):
            sock, _ = listener.accept()
            sock = tls.wrap_socket(sock, server_side=True) if tls else sock
            streams[str(number)] = pool.submit(stream, sock, str(number))
        return {name: one.result(30) for name, one in streams.items()}


async def asked(port, tls, *, held):
    """All streams at once; `held`: the loop is kept from running for 4 of every 5 ms."""
    endpoint = Endpoint(
        f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1",
        transport="websocket",
        as_message=lambda body, lane: in_lane(RESPONSES.as_message(body), lane),
        lane_of=lane_of,
    )
    limits = CallLimits(connect_s=20, first_output_s=20, stall_s=20, total_s=60)

    async def hold():
        while True:
            time.sleep(0.004)
            await asyncio.sleep(0.001)

    async with WebSocketExchange(endpoint, limits=limits, clock=MachineClock(), ssl_context=tls) as send:
        decoders = [RESPONSES.decoder(messages=True) for _ in range(STREAMS)]
        burner = asyncio.ensure_future(hold()) if held else None
        calls = []
        for number, decoder in enumerate(decoders):
            request = Request("m", (Block("b", 3, Role.USER),), 9, conversation=str(number))
            calls.append(send(RESPONSES.encode(request), decoder.feed))
        timelines = await asyncio.gather(*calls)
        if burner:
            burner.cancel()
    return [
        (timeline, decoder.answer(ended=True)) for timeline, decoder in zip(timelines, decoders, strict=True)
    ]


@pytest.mark.parametrize("held", [False, True], ids=["loop free", "loop held"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_true_times_lie_inside_the_bounds_over_websocket(request, secure, held):
    server_tls, client_tls = request.getfixturevalue("certificate") if secure else (None, None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        truths = {}
        server = threading.Thread(target=lambda: truths.update(served(listener, server_tls)))
        server.start()
        seen = asyncio.run(asked(listener.getsockname()[1], client_tls, held=held))
        server.join(30)
    assert len(seen) == len(truths)
    exact_us, exact = [], 0
    for timeline, answer in seen:
        sent = truths[answer.request_id]
        assert timeline.error is None
        assert timeline.clock is StampClock.KERNEL
        assert answer.text == "".join(f"{number} " for number in range(EVENTS))
        high, low = np.array(answer.high_ns), np.array(answer.low_ns)
        # an event cut in two is complete with the write of the next
        left = [sent[i] if sent[i] is not None else sent[i + 1] for i in range(EVENTS)]
        latest = [next(at for at in sent[i + 1 :] if at is not None and at > left[i]) for i in range(EVENTS)]
        assert (np.array(left) <= high + US).all()
        assert (low <= np.array(latest) + US).all()
        exact_us += ((high - np.array(left)) / US)[high == low].tolist()
        exact += int((high == low).sum())
    assert 0 < exact < STREAMS * EVENTS  # those with half of another behind them are not
    print(
        f"{exact} of {STREAMS * EVENTS} events exact: error p50 {np.quantile(exact_us, 0.5):.0f} us,"
        f" p99 {np.quantile(exact_us, 0.99):.0f} us"
    )
