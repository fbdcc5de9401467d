"""The file of object stores: what is taken, what is refused, and that credentials are renewed."""

from __future__ import annotations

import os
import traceback

import pytest

from leman_core.model.databases import StoreOptions
from leman_core.model.service_errors import InvalidArgument
from leman_core.process import process_secrets
from leman_core.storage import object_stores, store_file
from leman_core.storage.store_file import StoreFile, use_store_file, variables_in

SECRET = "do-not-tell-anyone"


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    object_stores.set_store_source(object_stores.GivenStores())


def written(folder, text: str) -> str:
    file = folder / "storage.toml"
    file.write_text(text)
    return str(file)


def entry(root: str = "s3://lake", *lines: str) -> str:
    return "\n".join(("[[store]]", f'root = "{root}"', *lines, ""))


def test_an_entry_has_its_credentials_from_where_it_says(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKE_KEY_ID", "key-1")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    path = written(
        tmp_path,
        entry(
            "s3://lake/teams/",
            'endpoint = "http://minio.internal:9000"',
            "allow_http = true",
            'access_key_id = { env = "LAKE_KEY_ID" }',
            f'secret_access_key = {{ file = "{tmp_path}/secret" }}',
        ),
    )

    assert variables_in(path) == {"LAKE_KEY_ID"}
    (found,) = StoreFile(path).stores()

    assert found == StoreOptions(
        root="s3://lake/teams",
        endpoint="http://minio.internal:9000",
        allow_http=True,
        region="us-east-1",
        access_key_id="key-1",
        secret_access_key=SECRET,
    )
    assert SECRET not in repr(found)
    assert "key-1" not in repr(found)
    assert "LAKE_KEY_ID" not in os.environ  # what the process starts does not inherit it
    assert StoreFile(path).stores() == (found,)  # and it is still known here


def test_the_longest_root_holds(tmp_path):
    use_store_file(
        written(
            tmp_path,
            entry("s3://lake", 'region = "eu-1"') + entry("s3://lake/a/b", 'region = "eu-2"') + entry("gs://models"),
        )
    )

    regions = {
        uri: options.region
        for uri in ("s3://lake/a", "s3://lake/a/b", "s3://lake/a/b/t.lance", "s3://lake/a/bc")
        if (options := object_stores.options_of(uri))
    }
    assert regions == {
        "s3://lake/a": "eu-1",
        "s3://lake/a/b": "eu-2",
        "s3://lake/a/b/t.lance": "eu-2",
        "s3://lake/a/bc": "eu-1",
    }
    assert object_stores.options_of("s3://lake2/a") is None
    assert object_stores.options_of("/s3/lake") is None
    both = object_stores.options_for(["s3://lake/x", "s3://lake/y", "", "/local", "gs://models/z"])
    assert [options.root for options in both] == ["s3://lake", "gs://models"]


def test_a_profile_gives_all_three(tmp_path):
    (tmp_path / "credentials").write_text(
        "[models]\naws_access_key_id = AK\naws_secret_access_key = a%b\naws_session_token = ST\n[other]\n"
    )
    lines = 'region = "eu-1"', 'profile = "models"', f'profile_file = "{tmp_path}/credentials"'

    (found,) = StoreFile(written(tmp_path, entry("s3://models", *lines))).stores()

    assert (found.access_key_id, found.secret_access_key, found.session_token) == ("AK", "a%b", "ST")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (entry("s3://lake", 'region = "r"', f'secret_access_key = "{SECRET}"'), "secrets may not be in this file"),
        (entry("s3://lake"), "region is missing"),
        (entry("s3://lake", 'endpoint = "http://h:1"'), "allow_http"),
        (entry("s3://lake", 'endpoint = "https://h/path"'), "a url without a path"),
        (entry("s3://lake", 'region = "r"', 'access_key_id = { env = "A" }'), "belong together"),
        (entry("s3://lake", 'region = "r"', 'profile = "p"', "anonymous = true"), "more than one kind"),
        (entry("s3://lake", 'region = "r"', 'profile_file = "p"'), "profile_file needs profile"),
        (entry("s3://lake", 'region = "r"', 'sas_token = { env = "A" }'), "sas_token: not an option for s3://"),
        (entry("gs://lake", 'region = "r"'), "region: not an option for gs://"),
        (entry("gs://lake", 'token = { env = "A", file = "/b" }'), "give either env or file"),
        (entry("gs://lake", 'token = { env = "LEMAN_TEST_NOT_THERE" }'), "LEMAN_TEST_NOT_THERE is not set"),
        (entry("gs://lake", 'token = { file = "/no/such/file" }'), "/no/such/file"),
        (entry("abfss://c@a.dfs.core.windows.net", 'client_id = "x"'), "belong together"),
        (entry("/data"), "is not in an object store"),
        (entry("ftp://data"), "names no supported store"),
        (entry("gs://lake") + entry("gs://lake/"), "a root has more than one entry"),
        ("[[store]]\nregion = 3\n", "root: Field required"),
        ("store = 3", "store"),
        ("[[", "cannot be used"),
    ],
)
def test_what_makes_no_sense_is_refused_at_the_start(tmp_path, text, said):
    with pytest.raises(InvalidArgument, match="LEMAN_STORAGE__OPTIONS_FILE") as refused:
        use_store_file(written(tmp_path, text))

    assert refused.value.reason == "BAD_SETTING"
    assert said in refused.value.message
    assert SECRET not in refused.value.message


@pytest.mark.parametrize("text", [f"[p]\naws_secret_access_key {SECRET}\n", f"{SECRET}\n[p]\n"])
def test_a_file_of_profiles_that_is_none_is_not_quoted(tmp_path, text):
    (tmp_path / "credentials").write_text(text)
    lines = 'region = "r"', 'profile = "p"', f'profile_file = "{tmp_path}/credentials"'

    with pytest.raises(InvalidArgument, match="is not a file of profiles") as refused:
        use_store_file(written(tmp_path, entry("s3://lake", *lines)))

    assert SECRET not in refused.value.message
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_a_pair_of_files_of_which_one_changed_while_they_were_read_is_read_again(tmp_path, monkeypatch):
    now, key, secret = [0.0], tmp_path / "key", tmp_path / "secret"
    key.write_text("key-1")
    secret.write_text("secret-1")
    lines = f'access_key_id = {{ file = "{key}" }}', f'secret_access_key = {{ file = "{secret}" }}'
    path = written(tmp_path, entry("s3://lake", 'region = "r"', *lines))
    stores = StoreFile(path, clock=lambda: now[0])
    read, left = store_file._read, [1]

    def slowly(path):
        found = read(path)
        if left[0]:
            left[0] -= 1
            secret.write_text("secret-of-2")
        return found

    monkeypatch.setattr(store_file, "_read", slowly)
    key.write_text("key-of-2")
    now[0] += 2.0
    (found,) = stores.stores()
    assert (found.access_key_id, found.secret_access_key) == ("key-of-2", "secret-of-2")


def test_a_process_that_others_are_forked_from_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKE_TOKEN", SECRET)
    path = written(tmp_path, entry("gs://lake", 'token = { env = "LAKE_TOKEN" }'))
    monkeypatch.setenv("LEMAN_STORAGE__OPTIONS_FILE", path)
    use_store_file(path)
    assert object_stores.options_of("gs://lake/t") is not None

    store_file.forget_store_file()

    assert object_stores.options_of("gs://lake/t") is None
    assert process_secrets.take_secret_env("LAKE_TOKEN") == ""
    assert "LAKE_TOKEN" not in os.environ


def test_a_session_token_of_the_environment_is_not_mixed_with_other_keys(tmp_path, monkeypatch):
    for name in ("A", "B"):
        monkeypatch.setenv(f"LAKE_{name}", "x")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of someone else")
    keys = 'access_key_id = { env = "LAKE_A" }', 'secret_access_key = { env = "LAKE_B" }'

    with pytest.raises(InvalidArgument, match="AWS_SESSION_TOKEN is set"):
        use_store_file(written(tmp_path, entry("s3://lake", 'region = "r"', *keys)))


def test_rewritten_credentials_are_taken_and_broken_ones_are_not(tmp_path):
    now, token = [0.0], tmp_path / "token"
    token.write_text("first")
    stores = StoreFile(written(tmp_path, entry("gs://lake", f'token = {{ file = "{token}" }}')), clock=lambda: now[0])

    def told() -> list[str]:
        now[0] += 2.0
        return [options.token for options in stores.stores()]

    token.write_text("second token")
    assert told() == ["second token"]
    token.write_text("")
    assert told() == ["second token"]
    token.unlink()
    assert told() == ["second token"]
    token.write_text("third")
    assert told() == ["third"]
    (tmp_path / "storage.toml").write_text("[[")
    assert told() == ["third"]
    (tmp_path / "storage.toml").write_text("")
    assert told() == []


def test_what_was_refused_lately_may_have_come_with_other_credentials(tmp_path):
    now, token = [0.0], tmp_path / "token"
    token.write_text("first")
    text = entry("gs://lake", f'token = {{ file = "{token}" }}') + entry("gs://models")
    object_stores.set_store_source(StoreFile(written(tmp_path, text), clock=lambda: now[0]))
    lake, models, elsewhere = "gs://lake/t.lance", "gs://models/t.lance", "gs://other/t.lance"

    assert not object_stores.were_renewed(lake)
    token.write_text("second token")
    assert object_stores.were_renewed(lake)  # it looks at once
    assert object_stores.options_of(lake).token == "second token"
    now[0] = 29.0
    assert [object_stores.were_renewed(place) for place in (lake, models, elsewhere)] == [True, False, False]
    now[0] = 31.0
    assert not object_stores.were_renewed(lake)
    object_stores.set_store_source(object_stores.GivenStores([StoreOptions(root="gs://lake")]))
    assert not object_stores.were_renewed(lake)
