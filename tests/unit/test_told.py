"""Headers of limits as vendors write them become numbers; nothing that a server sends makes it raise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from harness.client.told import NUMBERS_MAX, RETRY_AFTER, limits_told, resend_told, retry_after_s

NOON = 1_796_040_000.0  # 2026-11-30 12:00:00 UTC


def told(headers, wall_s=NOON):
    return limits_told(CIMultiDict(headers), wall_s=wall_s)


def test_openais_headers():
    headers = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-limit-tokens": "30000",
        "x-ratelimit-remaining-requests": "499",
        "X-RateLimit-Remaining-Tokens": "29,870",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-reset-tokens": "6m0.26s",
        "x-request-id": "req_1",
    }
    assert told(headers) == {
        "limit-requests": 500,
        "limit-tokens": 30_000,
        "remaining-requests": 499,
        "remaining-tokens": 29_870,
        "reset-requests-s": pytest.approx(0.12),
        "reset-tokens-s": pytest.approx(360.26),
    }


def test_anthropics_headers():
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "2000000",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-30T12:00:30Z",
        "anthropic-fast-output-tokens-limit": "0",
        "anthropic-priority-input-tokens-reset": "2026-11-30T13:00:10+01:00",
        "anthropic-version": "2023-06-01",
        "anthropic-organization-id": "42",
    }
    assert told(headers) == {
        "input-tokens-limit": 2_000_000,
        "input-tokens-remaining": 0,
        "input-tokens-reset-s": 30,
        "fast-output-tokens-limit": 0,
        "priority-input-tokens-reset-s": 10,
    }


def test_windows_stay_in_the_name_and_mistrals_cost_is_one():
    headers = {
        "x-ratelimit-remaining-tokens-minute": "59000",
        "x-ratelimit-limit-req-minute": "60",
        "x-ratelimit-tokens-query-cost": "31",
    }
    assert told(headers) == {
        "remaining-tokens-minute": 59_000,
        "limit-req-minute": 60,
        "tokens-query-cost": 31,
    }


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("12ms", 0.012),
        ("1m30s", 90),
        ("2m59.56s", 179.56),
        ("6h0m0s", 21_600),
        ("850µs", 0.00085),
        ("0s", 0),
        ("17", 17),
        ("0.5", 0.5),
        (str(NOON + 8), 8),
        (str(int((NOON + 8) * 1000)), 8),
        ("2026-11-30T12:01:00.500Z", 60.5),
        ("2026-11-30T12:01:00", 60),
    ],
)
def test_resets_come_in_many_forms(value, seconds):
    assert told({"x-ratelimit-reset-tokens": value}) == {"reset-tokens-s": pytest.approx(seconds)}


@pytest.mark.parametrize("value", ["", "soon", "1m30", "s", "m5s", "nan", "inf", "2026-99-99T00:00:00Z"])
def test_what_cannot_be_read_is_left_out(value):
    assert told({"x-ratelimit-reset-tokens": value, "x-ratelimit-limit-tokens": "many"}) == {}


def test_no_more_is_kept_than_fits_into_a_record():
    kept = told({f"x-ratelimit-limit-{'a' * 99}{i}": "1" for i in range(99)} | {"retry-after": "3"})
    assert len(kept) <= NUMBERS_MAX
    assert max(map(len, kept)) <= 42
    assert kept[RETRY_AFTER] == 3


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3),
        ({"retry-after": "0.25"}, 0.25),
        ({"Retry-After": " 7 "}, 7),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:20 GMT"}, 20),
        ({"retry-after": "Mon, 30 Nov 2026 11:59:50 GMT"}, -10),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "later"}, None),
        ({}, None),
    ],
)
def test_retry_after_in_every_form(headers, seconds):
    assert retry_after_s(CIMultiDict(headers), wall_s=NOON) == seconds


@pytest.mark.parametrize(
    ("value", "told"), [("true", True), ("false", False), ("True", True), ("maybe", None), ("", None)]
)
def test_what_a_server_says_of_asking_again(value, told):
    assert resend_told(CIMultiDict({"x-should-retry": value})) is told
    assert resend_told(CIMultiDict()) is None


@given(
    st.text(max_size=40)
    | st.floats().map(str)
    | st.from_regex(r"\w{3}, \d+ \w{3} \d+ [\d:]+ .?\d*", fullmatch=True)
)
def test_no_header_raises(value):
    headers = {"x-ratelimit-reset-tokens": value, "retry-after": value, "x-should-retry": value}
    told(headers)
    resend_told(CIMultiDict(headers))
