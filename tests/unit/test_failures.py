"""Every exception becomes one kind and a sentence that quotes nothing of the request."""

import errno
import socket
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from harness.client.failures import explain
from harness.values import ErrorKind

KEY = ConnectionKey("h", 1, False, True, None, None, None)


def connecting(number):
    return aiohttp.ClientConnectorError(KEY, OSError(number, "words of the library"))


@pytest.mark.parametrize(
    ("error", "stale", "kind", "words"),
    [
        pytest.param(
            connecting(errno.ECONNREFUSED), False, ErrorKind.CONNECT, "h:1: Connection refused", id="refused"
        ),
        pytest.param(
            connecting(errno.EMFILE), False, ErrorKind.CLIENT_RESOURCE, "Too many open files", id="files"
        ),
        pytest.param(
            connecting(errno.EADDRNOTAVAIL), False, ErrorKind.CLIENT_RESOURCE, "sockets", id="ports"
        ),
        pytest.param(
            aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(-2, "Name or service not known")),
            False,
            ErrorKind.CONNECT,
            "cannot resolve the host of h:1: Name or service not known",
            id="dns",
        ),
        pytest.param(
            aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]")),
            False,
            ErrorKind.TLS,
            "no TLS with h:1",
            id="tls",
        ),
        pytest.param(
            aiohttp.ClientPayloadError("key=secret"),
            False,
            ErrorKind.TRUNCATED,
            "before the body's end",
            id="cut",
        ),
        pytest.param(
            aiohttp.ClientOSError(104, "x"), False, ErrorKind.RESET, "Connection reset by peer", id="reset"
        ),
        pytest.param(
            aiohttp.ClientOSError(104, "x"),
            True,
            ErrorKind.STALE_CONNECTION,
            "idle connection",
            id="stale reset",
        ),
        pytest.param(aiohttp.ServerDisconnectedError(), False, ErrorKind.RESET, "closed", id="closed"),
        pytest.param(
            aiohttp.ServerDisconnectedError(), True, ErrorKind.STALE_CONNECTION, "idle", id="stale close"
        ),
    ],
)
def test_kind_and_sentence(error, stale, kind, words):
    told = explain(error, "h:1", stale=stale)
    assert told.kind == kind
    assert words in told.message
    assert "secret" not in told.message
