"""Who gets in, and how: the token by header, file, environment and cookie, and TLS."""

import contextlib
import http.client
import json
import socket
import ssl
import time

import numpy as np
import pytest
from live_certificates import certificate
from live_chromium import BROWSER, Tab
from live_pages import CONNECTED
from live_runs import OPTIMUM, line
from live_served import JSON, TOKEN, Served

from fedgauss.integrations.live.connection import Limits
from fedgauss.integrations.live.credentials import find_token, tls_context
from fedgauss.integrations.live.lines import Line

ROUND = line(1, np.array([2.0, -3.0]))
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def entered(it, token=TOKEN):
    """The cookie that comes for the token, as a browser would send it."""
    status, headers, body = it.ask("GET", f"/?token={token}")
    assert (status, headers["Location"], body) == (303, "/", b"")
    value, *attributes = headers["Set-Cookie"].split("; ")
    assert {"Path=/", "HttpOnly", "SameSite=Strict"} <= set(attributes)
    assert ("Secure" in attributes) == (it.server.guard.tls is not None)
    return {"Cookie": f"other=1; {value}"}


def test_a_browser_shows_the_token_once_and_a_cookie_from_then_on():
    with Served(TOKEN) as it:
        cookie = entered(it)
        assert TOKEN not in cookie["Cookie"]
        assert it.ask("GET", "/", headers=cookie)[0] == 200
        assert it.ask("GET", "/state", headers=cookie)[0] == 200
        origin = {"Origin": f"http://127.0.0.1:{it.server.port}"}
        assert it.ask("POST", "/rounds", ROUND, JSON | cookie | {"Origin": "http://127.0.0.1:1"})[0] == 403
        assert it.ask("POST", "/rounds", ROUND, JSON | cookie | origin)[0] == 200
        name, _, value = cookie["Cookie"].removeprefix("other=1; ").partition("=")
        for wrong in (f"{name}=", f"{name}={value[:-1]}", f"{name}={TOKEN}", f"other={value}", "=;;=\xe9", value):
            assert it.ask("GET", "/state", headers={"Cookie": wrong})[0] == 401
    with Served(TOKEN) as another:
        value = cookie["Cookie"].rpartition("=")[2]
        assert another.ask("GET", "/", headers={"Cookie": f"fedgauss_{another.server.port}={value}"})[0] == 401


def test_a_token_in_any_other_address_is_refused():
    """Addresses are written down in too many places."""
    with Served(TOKEN) as it:
        cookie = entered(it)
        for headers in ({}, cookie, BEARER):
            status, _, body = it.ask("GET", f"/state?token={TOKEN}", headers=headers)
            assert (status, "Authorization: Bearer" in json.loads(body)["error"]) == (401, True)
            assert it.ask("POST", f"/rounds?token={TOKEN}", ROUND, JSON | headers)[0] == 401
            assert it.ask("POST", f"/?token={TOKEN}", ROUND, JSON | headers)[0] in (401, 404)
        for wrong in (TOKEN[:-1], "%C3%A9", ""):
            assert it.ask("GET", f"/?token={wrong}")[0] == 401
        assert it.run.history.count == 0
    with Served("base64+has/these==") as it:
        entered(it, "base64+has/these==")
        entered(it, "base64%2Bhas%2Fthese%3D%3D")


def test_a_token_comes_from_a_file_the_environment_or_at_last_the_command_line(tmp_path):
    said, file = [], tmp_path / "token"
    file.touch(0o600)
    file.write_text(f"{TOKEN}\n")
    assert find_token(None, None, {}, said.append) is None
    assert find_token(None, None, {"FEDGAUSS_TOKEN": "from-the-environment"}, said.append) == "from-the-environment"
    assert find_token(None, file, {"FEDGAUSS_TOKEN": "from-the-environment"}, said.append) == TOKEN
    assert said == []
    assert find_token("given", None, {}, said.append) == "given"
    assert said.pop().startswith("Others on this machine can see --token")
    file.chmod(0o640)
    assert find_token(None, file, {}, said.append) == TOKEN
    assert "has mode 0640: its group can use it" in said.pop()
    file.chmod(0o644)
    with pytest.raises(
        ValueError, match=r"--token-file must not be accessible to others; .* has mode 0644. Use chmod 600"
    ):
        find_token(None, file, {}, said.append)
    file.chmod(0o600)
    with pytest.raises(ValueError, match="exclude each other"):
        find_token("given", file, {}, said.append)
    for content, words in ((b"", "holds 0"), (b"two words", "holds 2"), (b"\xff" * 20, "cannot be read")):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            find_token(None, file, {}, said.append)
    with pytest.raises(ValueError, match="--token-file must be a file that can be read"):
        find_token(None, tmp_path / "absent", {}, said.append)


def test_certificates_that_cannot_serve_are_refused_in_words(tmp_path):
    cert, key = certificate(tmp_path)
    other_cert, _ = certificate(tmp_path, "other")
    _, locked = certificate(tmp_path, "locked", b"secret")
    said, nothing = [], tmp_path / "empty.pem"
    nothing.touch(0o600)
    for pair, words in (
        ((cert, None), "--cert and --key belong together; --key is missing"),
        ((None, key), "--cert and --key belong together; --cert is missing"),
        ((tmp_path / "absent.pem", key), "--cert must be a file in PEM that can be read; .*absent.pem is none"),
        ((cert, tmp_path), "--key must be a file in PEM"),
        ((other_cert, key), "--key must belong to the certificate; page.key.pem and other.cert.pem do not match"),
        ((nothing, key), "must be a certificate, with its chain, and a private key in PEM; empty.pem or"),
        ((cert, nothing), "must be a certificate, with its chain, and a private key in PEM; page.cert.pem or empty"),
        ((cert, locked), "--key must not have a passphrase"),
    ):
        with pytest.raises(ValueError, match=words):
            tls_context(*pair, said.append)
    key.chmod(0o644)
    with pytest.raises(ValueError, match="--key must not be accessible to others"):
        tls_context(cert, key, said.append)
    key.chmod(0o640)
    assert tls_context(cert, key, said.append) is not None
    assert "its group can use it" in said.pop()
    assert tls_context(None, None, said.append) is None


class Encrypted(Served):
    def __init__(self, folder, token=None, limits=None):
        self.pair = certificate(folder)
        super().__init__(token, tls=tls_context(*self.pair, pytest.fail), limits=limits)
        self.trusting = ssl.create_default_context(cafile=self.pair[0])

    def link(self):
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=20, context=self.trusting)


def test_a_page_and_rounds_travel_encrypted(tmp_path):
    """Big ones too, and an Origin that is not encrypted is another's."""
    with Encrypted(tmp_path, TOKEN) as it:
        assert it.server.address == f"https://127.0.0.1:{it.server.port}/"
        cookie, here = entered(it), f"127.0.0.1:{it.server.port}"
        assert b"<title>" in it.ask("GET", "/", headers=cookie)[2]
        assert it.ask("GET", "/state", headers=cookie | {"Origin": f"http://{here}"})[0] == 403
        assert it.ask("POST", "/rounds", ROUND, JSON | cookie | {"Origin": f"https://{here}"})[0] == 200
        assert it.ask("POST", "/rounds", b" " * 2**22 + line(2, np.array([2.0, -3.0])), JSON | BEARER)[0] == 200
        assert it.ask("POST", "/rounds", b" " * (2**23 + 1), JSON | BEARER)[0] == 413
        for k in range(50):
            assert it.ask("GET", "/state", headers=BEARER)[0] == 200, k
        older = ssl.create_default_context(cafile=it.pair[0])
        older.minimum_version = ssl.TLSVersion.TLSv1_2
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        it.trusting = older
        assert it.ask("GET", "/state", headers=BEARER)[0] == 200


def test_who_does_not_speak_tls_or_stops_in_the_handshake_holds_up_nobody(tmp_path):
    with Encrypted(tmp_path, limits=Limits(connections=4, head_seconds=0.5)) as it, contextlib.ExitStack() as opened:
        silent = [opened.enter_context(socket.create_connection(("127.0.0.1", it.server.port))) for _ in range(4)]
        hello = bytes.fromhex("160301020001")  # the first bytes of a handshake
        silent[0].sendall(hello)
        assert it.ask("GET", "/state")[0] == 200
        with socket.create_connection(("127.0.0.1", it.server.port), timeout=20) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert b"200" not in plain.recv(2**16)
        until = time.monotonic() + 20
        while sum(it.server.rejected.values()) < 4:
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed: only a browser can say how a page looks")
def test_a_browser_loads_the_page_over_tls_with_its_cookie(tmp_path):
    with Encrypted(tmp_path, TOKEN) as it:
        tab = Tab(tmp_path / "browser")
        try:
            tab.call("Security.setIgnoreCertificateErrors", ignore=True)  # it is signed by itself
            tab.open(f"{it.server.address}?token={TOKEN}", shown=it.server.address)
            tab.wait_for(CONNECTED)
            it.run.take(Line(1, OPTIMUM))
            tab.wait_for("document.getElementById('status').className === 'status quiet'", 5.0)
            assert TOKEN not in tab.value("location.href + document.cookie + document.documentElement.outerHTML")
        finally:
            tab.close()
