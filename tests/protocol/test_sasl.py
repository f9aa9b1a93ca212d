"""SCRAM against the RFCs' own examples, and JAAS texts as people have them."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.protocol import jaas, scram

# RFC 7677, section 3
USER, PASSWORD, NONCE = "user", "pencil", "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client() -> scram.ClientExchange:
    return scram.ClientExchange("SCRAM-SHA-256", USER, PASSWORD, NONCE)


def test_the_example_of_rfc_7677() -> None:
    exchange = client()
    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.final(SERVER_FIRST) == CLIENT_FINAL
    exchange.check(SERVER_FINAL)


def test_the_servers_side_of_it() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = scram.salted_password("SCRAM-SHA-256", PASSWORD, salt, 4096)
    credential = scram.credential_of("SCRAM-SHA-256", salted, salt, 4096)
    bare, _, proof = CLIENT_FINAL.decode().rpartition(",p=")
    message = scram.auth_message("n=user,r=" + NONCE, SERVER_FIRST.decode(), bare)
    assert scram.proof_holds("SCRAM-SHA-256", credential, message, scram.binary(proof))
    assert (
        b"v=" + base64.b64encode(scram.server_signature("SCRAM-SHA-256", credential, message)) == SERVER_FINAL
    )
    wrong = bytearray(scram.binary(proof))
    wrong[0] ^= 1
    assert not scram.proof_holds("SCRAM-SHA-256", credential, message, bytes(wrong))
    assert not scram.proof_holds("SCRAM-SHA-256", credential, message, b"")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (b"r=other,s=AAAA,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1"), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=x"), "iterations"),
        (SERVER_FIRST.replace(b"s=W22", b"s=!22"), "base64"),
        (b"e=unknown-user", "unknown-user"),
        (b"nonsense", "NAME=VALUE"),
        (b"r=a,r=b", "NAME=VALUE"),
        (b"\xff\xfe", "NAME=VALUE"),
    ],
)
def test_a_server_that_makes_no_sense_is_refused(told: bytes, says: str) -> None:
    with pytest.raises(scram.ScramError, match=says) as raised:
        client().final(told)
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize(
    "told", [b"v=AAAA", b"e=invalid-proof", b"v=", b"x=1", SERVER_FINAL.replace(b"6r", b"6s")]
)
def test_a_server_that_does_not_know_the_password_is_refused(told: bytes) -> None:
    exchange = client()
    exchange.final(SERVER_FIRST)
    with pytest.raises(scram.ScramError):
        exchange.check(told)


@given(st.text())
def test_names_survive_quoting(name: str) -> None:
    assert scram.unquoted(scram.quoted(name)) == name
    assert "," not in scram.quoted(name)


@pytest.mark.parametrize("name", ["a=b", "=", "a=2c"])
def test_a_lone_equals_sign_in_a_name_is_refused(name: str) -> None:
    with pytest.raises(scram.ScramError):
        scram.unquoted(name)


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
UP = {"username": "u", "password": "p"}


@pytest.mark.parametrize(
    ("text", "module", "options"),
    [
        (f'{PLAIN} required username="u" password="p";', "PlainLoginModule", UP),
        (f"{PLAIN} required\n  username='u'\n  password=p ;\n", "PlainLoginModule", UP),
        (
            r'X.ScramLoginModule REQUIRED username="a\"b" password="p;=\\";',
            "ScramLoginModule",
            {"username": 'a"b', "password": "p;=\\"},
        ),
        ("ScramLoginModule required;", "ScramLoginModule", {}),
        (
            f'{PLAIN} required user_alice="1" serviceName="kafka";',
            "PlainLoginModule",
            {"user_alice": "1", "serviceName": "kafka"},
        ),
    ],
)
def test_jaas_texts(text: str, module: str, options: dict[str, str]) -> None:
    found = jaas.parse(text)
    assert (found.module, found.options) == (module, options)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        f'{PLAIN} username="u";',
        f'{PLAIN} required password="secret"',
        f'{PLAIN} required password="secret;',
        f"{PLAIN} required password secret;",
        f'{PLAIN} required password="secret"; {PLAIN} required;',
    ],
)
def test_what_is_no_jaas_text_is_refused_without_its_values(text: str) -> None:
    with pytest.raises(jaas.JaasError) as raised:
        jaas.parse(text)
    assert "secret" not in str(raised.value)
