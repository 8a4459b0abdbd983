"""Options that cannot work fail where they are written, and none of them shows a token."""

from datetime import timedelta
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ConfigurationError
from penstock.web import WebOptions, create_app

SECRET = "correct-horse-battery-staple"


@pytest.mark.parametrize(
    "wrong",
    [
        {"connections": 0},
        {"per_topic": 0},
        {"queue": 0},
        {"request_bytes": 0},
        {"heartbeat": timedelta(0)},
        {"retry": 3},
        {"patience": timedelta(seconds=-1)},
        {"open_to_all": "yes"},
        {"read": "orders"},
        {"read": ["a*b"]},
        {"write": [""]},
        {"tokens": ["short"]},
        {"tokens": ["with a blank in the middle"]},
        {"origins": ["shop.example"]},
        {"origins": ["https://shop.example/"]},
        {"origins": ["*"]},
        {"origins": ["http://["]},
        {"origins": ["https://shop.example:port"]},
        {"origins": ["https://user@shop.example"]},
    ],
)
def test_an_option_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        WebOptions(**wrong)


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://Shop.example", "http://[::1]:80"])
def test_what_browsers_call_an_origin_is_one(origin: str) -> None:
    assert WebOptions(origins=[origin]).origins == [origin]


def test_no_text_holds_a_token() -> None:
    assert SECRET not in repr(WebOptions(tokens=[SECRET]))
    with pytest.raises(ConfigurationError) as refused:
        WebOptions(tokens=[SECRET + " x"])
    assert SECRET not in str(refused.value)


def test_a_gateway_is_made_of_an_app_and_options() -> None:
    with pytest.raises(ConfigurationError):
        create_app("redis://127.0.0.1")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        create_app(Penstock.connect(), {"queue": 5})  # type: ignore[arg-type]
