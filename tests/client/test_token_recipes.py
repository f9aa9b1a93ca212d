"""The functions for tokens in docs/logins.md, called as the client does, with stand-ins for the libraries."""

import datetime
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from eoslog.client.wire.token_settings import Flow, TokenSettings
from eoslog.client.wire.tokens import Tokens, _claims
from tests.docs.blocks import ROOT, blocks_of

PAGE = ROOT / "docs" / "logins.md"


def recipe(monkeypatch: pytest.MonkeyPatch, about: str, **changed: str) -> TokenSettings:
    """The one recipe of the page that has `about` in it, as a module that a callback names."""
    [code] = [one.code for one in blocks_of(PAGE) if one.language == "python" and about in one.code]
    for old, new in changed.items():
        assert old in code
        code = code.replace(old, new)
    module = ModuleType("recipe_of_the_page")
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return TokenSettings(Flow.CALLBACK, callback="recipe_of_the_page:token")


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A module, and the packages that it is in."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules or end == len(parts):
            monkeypatch.setitem(sys.modules, path, ModuleType(path))
        if end > 1:
            monkeypatch.setattr(
                sys.modules[".".join(parts[: end - 1])], parts[end - 1], sys.modules[path], False
            )
    for member, value in members.items():
        setattr(sys.modules[name], member, value)


def kept_for(monkeypatch: pytest.MonkeyPatch, settings: TokenSettings, seconds: float) -> str:
    """The token, which is asked for again after four fifths of the time."""
    clock = [0.0]
    tokens = Tokens(lambda: clock[0])
    first = tokens.token(settings)
    calls: list[int] = []
    function = sys.modules["recipe_of_the_page"].token

    def counted() -> Any:
        calls.append(1)
        return function()

    monkeypatch.setattr(sys.modules["recipe_of_the_page"], "token", counted)
    for second, expected in ((seconds * 0.8 - 30, 0), (seconds * 0.8 + 1, 1)):
        clock[0] = second
        tokens.token(settings)
        assert len(calls) == expected, second
    return first


def test_entra_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class DefaultAzureCredential:
        def get_token(self, scope: str) -> Any:
            asked.append(scope)
            return SimpleNamespace(token="of azure", expires_on=int(time.time()) + 3600)

    stand_in(monkeypatch, "azure.identity", DefaultAzureCredential=DefaultAzureCredential)
    assert kept_for(monkeypatch, recipe(monkeypatch, "azure.identity"), 3600) == "of azure"
    assert asked[0] == "https://NAMESPACE.servicebus.windows.net/.default"


def test_google(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        service_account_email = "streams@example.iam"
        token, expiry = "", datetime.datetime(1970, 1, 1)

        def refresh(self, request: object) -> None:
            """Google's library has the end in UTC without saying so."""
            end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3600)
            self.token, self.expiry = "ya29.of-google", end.replace(tzinfo=None)

    stand_in(monkeypatch, "google.auth.transport.requests", Request=object)
    monkeypatch.setattr(sys.modules["google.auth"], "default", lambda scopes: (Found(), None), raising=False)
    token = kept_for(monkeypatch, recipe(monkeypatch, "google.auth"), 3600)
    claims = _claims(token)
    assert claims["sub"] == "streams@example.iam" and 3500 < claims["exp"] - time.time() <= 3600
    assert token.count(".") == 2 and "=" not in token


def test_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = recipe(monkeypatch, "pathlib", **{"/var/run/secrets/tokens/kafka": str(file)})
    tokens = Tokens()
    for text in ("first", "second"):
        file.write_text(f"{text}\n")
        assert tokens.token(settings) == text
