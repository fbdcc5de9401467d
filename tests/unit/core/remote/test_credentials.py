"""Which credentials are for which server, and what is said of a file that cannot be used."""

from pathlib import Path

import pytest

from leman_core.functions.server_credentials import access_to
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.work import ServerAccess

NEAR, FAR, PLAIN = "grpc://127.0.0.1:7815", "grpc+tls://a.features.internal:7443", "grpc://a.features.internal:7815"


def written(folder: Path, text: str) -> str:
    path = folder / "credentials.toml"
    path.write_text(text)
    return str(path)


def refused(folder: Path, text: str, address: str = FAR) -> str:
    with pytest.raises(FailedPrecondition) as caught:
        access_to([address], written(folder, text))
    assert caught.value.reason == "FUNCTION_ACCESS_DENIED"
    return caught.value.message


def test_without_a_file_or_a_table_nothing_is_sent(tmp_path):
    assert access_to([NEAR, FAR], "") == (ServerAccess(NEAR), ServerAccess(FAR))
    other = '[[server]]\naddress = "grpc+tls://*.elsewhere:*"\ntoken = "sesame"\n'
    assert access_to([FAR], written(tmp_path, other)) == (ServerAccess(FAR),)


def test_the_first_table_that_means_an_address_holds(tmp_path):
    (tmp_path / "token").write_text("from-a-file\n")
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"the {name}")
    text = f"""
        [[server]]
        address = "grpc+tls://*.features.internal:7443"
        token_file = "{tmp_path}/token"
        ca = "{tmp_path}/ca"
        cert = "{tmp_path}/cert"
        key = "{tmp_path}/key"
        [[server]]
        address = "grpc+tls://*:*"
        token = "another"
    """
    elsewhere = "grpc+tls://b.example:1"
    found = access_to([FAR, elsewhere, NEAR], written(tmp_path, text))
    assert found[0] == ServerAccess(FAR, "from-a-file", "the ca", "the cert", "the key")
    assert found[1:] == (ServerAccess(elsewhere, "another"), ServerAccess(NEAR))


def test_a_token_is_sent_in_the_clear_to_this_machine_alone_or_where_it_is_said(tmp_path):
    table = '[[server]]\naddress = "grpc://*:*"\ntoken = "sesame"\n'
    assert access_to([NEAR], written(tmp_path, table))[0].token == "sesame"
    message = refused(tmp_path, table, PLAIN)
    assert "its token is not sent without TLS" in message
    assert "sesame" not in message
    assert access_to([PLAIN], written(tmp_path, table + "insecure = true\n"))[0].token == "sesame"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[server]]\naddress = "features"\n', "not a pattern of addresses"),
        ('[[server]]\naddress = "grpc+tls://*:*"\nsecret = "x"\n', "server.0.secret"),
        ('[[server]]\naddress = "grpc+tls://*:*"\ntoken = "x"\ntoken_file = "y"\n', "token or token_file"),
        ('[[server]]\naddress = "grpc+tls://*:*"\ncert = "x"\n', "cert and key belong together"),
        (
            '[[server]]\naddress = "grpc+tls://*:*"\nca = "/no/such/file"\n',
            "a file with its credentials cannot be read",
        ),
        ("[[server", "cannot be used"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, text, told):
    assert told in refused(tmp_path, text)


def test_a_file_that_is_gone_is_said(tmp_path):
    with pytest.raises(FailedPrecondition, match="No such file"):
        access_to([FAR], str(tmp_path / "none"))


def test_secrets_are_not_shown():
    shown = repr(ServerAccess(FAR, token="sesame", key="a key"))
    assert "sesame" not in shown
    assert "a key" not in shown
