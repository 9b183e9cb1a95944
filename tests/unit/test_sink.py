"""Pins what the sink uses of aiohttp's inside: a new minor must be read before it is trusted."""

import inspect

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import _EXC_SENTINEL
from aiohttp.http_parser import HttpResponseParser, HttpResponseParserPy
from aiohttp.streams import StreamReader

from harness.client.sink import MessageSocket, _Sink


def test_aiohttp_minor_is_the_one_that_was_read():
    assert aiohttp.__version__.split(".")[:2] == ["3", "14"], (
        "read aiohttp/streams.py, client_proto.py and _http_parser.pyx again, then harness/client/sink.py"
    )


def test_parser_in_c_is_used():
    assert HttpResponseParser is not HttpResponseParserPy


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("feed_data", ["self", "data", "size"]),
        ("feed_eof", ["self"]),
        ("set_exception", ["self", "exc", "exc_cause"]),
        ("begin_http_chunk_receiving", ["self"]),
        ("end_http_chunk_receiving", ["self"]),
    ],
)
def test_parser_still_calls_what_is_overridden(name, parameters):
    assert list(inspect.signature(getattr(StreamReader, name)).parameters) == parameters
    assert list(inspect.signature(getattr(_Sink, name)).parameters) == parameters


def test_every_way_that_feeds_a_body_is_overridden():
    feeding = {name for name in vars(StreamReader) if name.startswith(("feed_", "begin_", "end_"))}
    assert feeding == {name for name in vars(_Sink) if name.startswith(("feed_", "begin_", "end_"))}


def test_class_can_be_swapped():
    assert "_waiter" in StreamReader.__slots__
    assert _Sink.__slots__ == ()
    assert _Sink.__basicsize__ == StreamReader.__basicsize__


def test_no_exception_cause_is_told_as_aiohttp_tells_it():
    assert inspect.signature(StreamReader.set_exception).parameters["exc_cause"].default is _EXC_SENTINEL


def test_protocol_tells_what_broke_it():
    assert callable(ResponseHandler.exception)


def test_a_websocket_is_asked_for_the_parser_that_it_was_given():
    asked = inspect.getsource(aiohttp.ClientSession._ws_connect)
    assert "ws_resp._parser = " in asked
    assert "set_parser(ws_resp._parser," in asked
    assert isinstance(vars(MessageSocket)["_parser"], property)


def test_protocol_feeds_a_parser_and_tells_it_the_end():
    fed = inspect.getsource(ResponseHandler)
    assert "self._payload_parser.feed_data(data)" in fed
    assert "self._payload_parser.feed_eof()" in fed


def test_sending_again_can_be_switched_off():
    assert "self._retry_connection and method in IDEMPOTENT_METHODS" in inspect.getsource(
        aiohttp.ClientSession._request
    )
