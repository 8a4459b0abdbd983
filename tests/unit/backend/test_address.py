"""URLs become addresses; what is wrong with one is said without any piece of its password."""

import copy
import dataclasses
import logging
import pickle
import pprint
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.backend.address import Address, Secret, default_directory, parse, resolve
from penstock.errors import ConfigurationError

pytestmark = pytest.mark.timeout(180)  # many examples, each of which takes long where the machine is busy


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost", Address(kind="tcp", host="localhost")),
        ("redis://localhost/", Address(kind="tcp", host="localhost")),
        ("REDIS://db_1.internal:7000/3", Address(kind="tcp", host="db_1.internal", port=7000, db=3)),
        ("valkey://10.0.0.1:1/0", Address(kind="tcp", host="10.0.0.1", port=1)),
        ("redis://h?db=4", Address(kind="tcp", host="h", db=4)),
        ("redis://h/4?db=4", Address(kind="tcp", host="h", db=4)),
        ("redis://[::1]:7000/2", Address(kind="tcp", host="::1", port=7000, db=2)),
        ("redis://[fe80::1%25eth0]", Address(kind="tcp", host="fe80::1%eth0")),
        ("redis://@h", Address(kind="tcp", host="h")),
        ("redis://h?client_name=a%40b", Address(kind="tcp", host="h", client_options=(("client_name", "a@b"),))),
        ("valkeys://h", Address(kind="tls", host="h")),
        ("unix:///run/a%20b%40c.sock", Address(kind="unix", path="/run/a b@c.sock")),
        ("unix:///run/v.sock?db=2", Address(kind="unix", path="/run/v.sock", db=2)),
        ("embedded://", Address(kind="embedded")),
        ("embedded:///", Address(kind="embedded")),
        ("embedded:///var/a%20b@c", Address(kind="embedded", path="/var/a b@c")),
        ("embedded://?ephemeral=true&tcp=true", Address(kind="embedded", ephemeral=True, tcp=True)),
        ("embedded:///d?ephemeral=false&tcp=false", Address(kind="embedded", path="/d")),
    ],
)
def test_a_good_url_is_read(url: str, expected: Address) -> None:
    assert parse(url) == expected


@pytest.mark.parametrize(
    ("url", "username", "password"),
    [
        ("redis://:s3cret@h", None, "s3cret"),
        ("redis://ann:s3cret@h", "ann", "s3cret"),
        ("redis://ann:@h", "ann", ""),
        ("redis://a%3Ab:%2F%3F%23%40%25%C3%A9@h", "a:b", "/?#@%é"),
        ("redis://ann:a:b@c@h", "ann", "a:b@c"),
        ("unix://ann:s3cret@/run/v.sock", "ann", "s3cret"),
    ],
)
def test_credentials_are_decoded(url: str, username: str | None, password: str) -> None:
    address = parse(url)
    assert (address.username, address.password) == (username, password)


def test_tls_options_reach_the_client() -> None:
    address = parse("rediss://h?ssl_ca_certs=/etc/my%20ca.pem&ssl_certfile=/c&ssl_keyfile=/k&client_name=web-1")
    assert address.options == {
        "ssl_ca_certs": "/etc/my ca.pem",
        "ssl_certfile": "/c",
        "ssl_keyfile": "/k",
        "client_name": "web-1",
    }


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("", "redis://"),
        ("localhost:6379", "redis://"),
        ("http://h", r"redis://, valkey://, rediss://, valkeys://, unix://, embedded://, redis\+sentinel://"),
        ("redis+cluster://h", "does not open"),
        ("redis://", "no host"),
        ("redis:///0", "no host"),
        ("redis://:6379", "no host"),
        ("redis://a:b@:6379", "no host"),
        ("redis://h:", "port"),
        ("redis://h:0", "port"),
        ("redis://h:65536", "port"),
        ("redis://h:٣", "port"),
        ("redis://::1", "no host"),
        ("redis://a::1", "port.*brackets"),
        ("redis://[::1", "IPv6"),
        ("redis://[zz]", "IPv6"),
        ("redis://[::1]6379", "port"),
        ("redis://h,g", "host name"),
        ("redis://h/-1", "database"),
        ("redis://h/one", "database"),
        ("redis://h/0/1", "database"),
        ("redis://h/٣", "database"),
        ("redis://h/1?db=2", "two different databases"),
        ("redis://h?db=", "'db' no value"),
        ("redis://h?db=1&db=1", "'db' twice"),
        ("redis://h?timeout=1", r"unknown option \(number 1\).*db, client_name"),
        ("redis://h?db=1&", r"unknown option \(number 2\)"),
        ("redis://h?ssl_ca_certs=/x", "it needs rediss://"),
        ("redis://h?client_name=a%20b", "client_name"),
        ("rediss://h?ssl_cert_reqs=none", "certificates are always checked"),
        ("rediss://h?ssl_check_hostname=false", "certificates are always checked"),
        ("rediss://h?ssl_keyfile=/k", "without ssl_certfile"),
        ("redis://h?password=x", "before the host"),
        ("redis://word@h", ":password@"),
        ("redis://h h", "space"),
        ("redis://h\n", "line break"),
        ("redis://a:b#c@h", "%23"),
        ("redis://a:b%zz@h", "%25"),
        ("redis://a:b%@h", "%25"),
        ("redis://a:%ff@h", "password that is not UTF-8"),
        ("redis://a:b/c@h", "percent-encoded"),
        ("redis://a:b?c@h", "percent-encoded"),
        ("unix://", "no path"),
        ("unix:///", "no path"),
        ("unix://run/v.sock", "third slash"),
        ("unix:///run/%00", "zero byte"),
        ("embedded://dir", "third slash"),
        ("embedded://a:b@h/dir", "third slash"),
        ("embedded://?ephemeral=yes", "neither true nor false"),
        ("embedded:///d?ephemeral=true", "leave one of them out"),
        ("embedded://?db=1", "ephemeral, tcp"),
        ("redis+sentinel://h", "no service"),
        ("redis+sentinel://h//0", "no service"),
        ("redis+sentinel:///main", "no host"),
        ("redis+sentinel://h,/main", "no host"),
        ("redis+sentinel://h,g:0/main", "port"),
        ("redis+sentinel://h/main/x", "database.*after the service"),
        ("redis+sentinel://h/main/0/1", "database"),
        ("redis+sentinel://h/main/1?db=2", "two different databases"),
        ("redis+sentinel://a:b@h,a:b@g/main", "more than one '@'"),
        ("redis+sentinel://word@h/main", ":password@"),
        ("redis+sentinel://h/main?ssl_ca_certs=/x", r"it needs rediss:// or rediss\+sentinel://"),
        ("redis+sentinel://h/main?sentinel_tls=false", r"it needs rediss\+sentinel://"),
        ("rediss+sentinel://h/main?sentinel_tls=no", "neither true nor false"),
        ("redis+sentinel://h/main?sentinel_username=a", "without sentinel_password"),
        ("redis+sentinel://h/main?password=x", "before the host"),
        ("redis+sentinel://h/main?socket_timeout=1", "db, client_name, sentinel_username, sentinel_password"),
        ("redis://h?sentinel_password=x", r"it needs redis\+sentinel://"),
    ],
)
def test_a_bad_url_is_refused_by_the_part_that_is_wrong(url: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named) as caught:
        parse(url)
    assert "a good one looks like" in str(caught.value)


def test_sentinels_are_read_with_their_service_and_an_account_of_their_own() -> None:
    address = parse("redis+sentinel://ann:s3cret@a,[::1]:7/my%20main/2?sentinel_password=g%40&sentinel_username=guest")
    assert (address.username, address.password, address.service, address.db) == ("ann", "s3cret", "my main", 2)
    guest = {"username": "guest", "secret": Secret("g@")}
    assert address.sentinels == (
        Address(kind="tcp", host="a", port=26379, **guest),
        Address(kind="tcp", host="::1", port=7, **guest),
    )
    assert address.options == {}
    assert address.holds_secrets
    assert parse("redis+sentinel://h/main?sentinel_password=x").holds_secrets
    assert not parse("valkey+sentinel://h/main?db=1").holds_secrets


def test_tls_to_sentinels_goes_with_that_to_servers_unless_told_otherwise() -> None:
    url = "rediss+sentinel://h/main?ssl_ca_certs=/ca&client_name=n"
    files = (("ssl_ca_certs", "/ca"),)
    address = parse(url)
    assert (address.kind, address.options) == ("tls", {"ssl_ca_certs": "/ca", "client_name": "n"})
    assert address.sentinels == (Address(kind="tls", host="h", port=26379, client_options=files),)
    plain = parse(f"{url}&sentinel_tls=false")
    assert (plain.kind, plain.options) == (address.kind, address.options)
    assert plain.sentinels == (Address(kind="tcp", host="h", port=26379),)


def test_what_sentinels_have_named_is_an_address_like_any_other() -> None:
    found = parse("rediss+sentinel://ann:s3cret@h/main/2?client_name=n").at("10.0.0.1", 7000)
    expected = parse("rediss://ann:s3cret@10.0.0.1:7000/2?client_name=n")
    assert found == dataclasses.replace(expected, service="main")
    assert str(found) == str(expected)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be a str, not bytes"):
        parse(b"redis://h")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://ann:s3cret@h", "redis://ann:***@h:6379/0"),
        ("rediss://:s3cret@[::1]:1/2", "rediss://:***@[::1]:1/2"),
        ("valkey://h", "redis://h:6379/0"),
        ("unix://:s3cret@/run/a%20b.sock?db=1", "unix://:***@/run/a%20b.sock?db=1"),
        ("embedded:///d?tcp=true", "embedded:///d?tcp=true"),
        ("embedded://?ephemeral=true", "embedded://?ephemeral=true"),
        ("redis+sentinel://:s3cret@h/main?sentinel_password=x", "redis+sentinel://:***@h:26379/main/0"),
        ("valkeys+sentinel://a,[::1]:7/m%2F/1", "rediss+sentinel://a:26379,[::1]:7/m%2F/1"),
    ],
)
def test_an_address_shows_everything_but_the_password(url: str, shown: str) -> None:
    assert str(parse(url)) == shown
    assert repr(parse(url)) == f"Address('{shown}')"


def test_an_address_survives_pickle_and_copy_with_its_password() -> None:
    for url in ("redis://ann:s3cret@h", "redis+sentinel://ann:s3cret@h/main?sentinel_password=other"):
        address = parse(url)
        assert pickle.loads(pickle.dumps(address)) == copy.deepcopy(address) == address
    address = parse("redis://ann:s3cret@h")
    assert hash(address) == hash(parse("redis://ann:s3cret@h"))
    assert address != parse("redis://ann:other@h")


# Chunks of letters that occur in no text, name or path of ours, joined by what breaks URLs.
CHUNKS = st.text(alphabet="QXZJ", min_size=3, max_size=6)
NASTY = st.text(alphabet="#/?@%:[]&= \t\n\\\"'é\u2100\ud800", max_size=3)
PASSWORDS = st.lists(st.tuples(CHUNKS, NASTY), min_size=1, max_size=4).map(
    lambda parts: "".join(chunk + nasty for chunk, nasty in parts)
)


def pieces(password: str) -> set[str]:
    triples = {password[at : at + 3] for at in range(len(password) - 2)}
    return {triple for triple in triples if set(triple) <= set("QXZJ")}


def everything_said_about(url: str) -> str:
    try:
        address = parse(url)
    except ConfigurationError as error:
        chain: list[BaseException] = [error]
        for link in chain:
            chain.extend(other for other in (link.__cause__, link.__context__) if other is not None)
        return "".join(f"{link}{link!r}{link.args}" for link in chain) + traceback.format_exc()
    fields = dataclasses.asdict(address)
    return f"{address}{address!r}{address.secret}{pprint.pformat(fields)}{pprint.pformat(address)}"


@settings(max_examples=300, deadline=None)
@given(password=PASSWORDS, scheme=st.sampled_from(["redis", "rediss", "unix", "redis+sentinel", "http"]))
def test_a_password_shows_nowhere_however_it_was_written(password: str, scheme: str) -> None:
    encoded = quote(password, safe="", errors="replace")
    place = {"unix": "/run/v.sock", "redis+sentinel": "h:6379,g/main/0"}.get(scheme, "h:6379/0")
    urls = [f"{scheme}://ann:{encoded}@{place}", f"{scheme}://:{encoded}@{place}?client_name=a%20b"]
    urls += [f"{scheme}://ann:{encoded}@h:port/x", f"{scheme}://ann:{encoded}@{place}?password={encoded}"]
    urls += [f"{scheme}://ann:{password}@{place}", f"{scheme}://:{password}@{place}?db=1", f"embedded://{password}"]
    urls += [f"{scheme}://ann:{password}@", f"{scheme}:/{password}@{place}", f"{scheme}://h?{password}=1"]
    urls += [f"{password}://ann@{place}", f"{password}@{place}"]
    urls += [f"{scheme}://{place}?sentinel_password={given}" for given in (encoded, password)]
    if "@" not in password:  # what stands behind the last '@' is a host, and shown
        urls += [f"{scheme}://h:{password}", f"{scheme}://h/main/{password}"]
        urls += [f"{scheme}://h/{password}"] if scheme != "redis+sentinel" else []  # a service, which is shown
    if ":" not in password:  # what stands before a colon is a user name, and shown
        urls += [f"{scheme}://{password}@{place}"]
    for url in urls:
        said = everything_said_about(url)
        assert not [piece for piece in pieces(password) if piece in said]


def test_a_password_that_is_no_text_leaves_no_trace_in_the_chain_of_errors() -> None:
    assert "QXZJ" not in everything_said_about("redis://ann:QXZJ%ff@h")


@given(password=st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_a_percent_encoded_password_arrives_whole(password: str) -> None:
    assert parse(f"redis://ann:{quote(password, safe='')}@h").password == password


def test_an_explicit_url_wins_over_the_environment() -> None:
    assert resolve("redis://a", {"PENSTOCK_URL": "redis://b"}).host == "a"
    assert resolve(None, {"PENSTOCK_URL": "redis://b"}).host == "b"


def test_an_empty_url_is_an_error_but_an_empty_variable_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        resolve("", {})
    assert resolve(None, {"PENSTOCK_URL": "", "XDG_STATE_HOME": str(tmp_path)}).kind == "embedded"


def test_an_error_in_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigurationError, match=r"^\$PENSTOCK_URL must start with"):
        resolve(None, {"PENSTOCK_URL": "http://h"})


def test_the_default_is_the_embedded_server_and_it_says_so(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.WARNING, logger="penstock"):
        address = resolve(None, {"XDG_STATE_HOME": str(tmp_path)})
    directory = tmp_path / "penstock" / "default"
    assert address == Address(kind="embedded", path=str(directory))
    assert address.directory == directory
    [record] = caplog.records
    assert (record.name, record.levelname) == ("penstock", "WARNING")
    assert str(directory) in record.getMessage()
    assert "$PENSTOCK_URL" in record.getMessage()


def test_data_goes_below_the_state_directory() -> None:
    assert default_directory({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path("/s/penstock/default")
    assert default_directory({"HOME": "/h"}) == Path("/h/.local/state/penstock/default")
    # The XDG specification has a relative path ignored.
    assert default_directory({"XDG_STATE_HOME": "s", "HOME": "/h"}) == Path("/h/.local/state/penstock/default")
