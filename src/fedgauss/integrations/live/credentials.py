"""Where the token and the certificate come from, and whether others could read them."""

import os
import ssl
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

VARIABLE = "FEDGAUSS_TOKEN"


def find_token(
    given: str | None, file: Path | None, environ: Mapping[str, str], say: Callable[[str], None]
) -> str | None:
    """The token from --token, a file, or the environment, in this order; None if there is none.

    `say` is told if others on this machine could see it.
    """
    if given is not None and file is not None:
        raise ValueError("--token and --token-file exclude each other; leave out --token, which others can see.")
    if given is not None:
        say(f"Others on this machine can see --token in the list of processes. Use --token-file, or {VARIABLE}?")
        return given
    if file is None:
        return environ.get(VARIABLE) or None
    check_private("--token-file", file, say)
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"--token-file must be a text file with the token alone; {file} cannot be read.") from None
    if not token or len(token.split()) > 1:
        raise ValueError(f"--token-file must hold one word, the token; {file} holds {len(token.split())}.")
    return token


def tls_context(cert: Path | None, key: Path | None, say: Callable[[str], None]) -> ssl.SSLContext | None:
    """A context for TLS 1.2 or later from PEM files; None if no certificate is given."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        lacks = "--cert" if cert is None else "--key"
        raise ValueError(f"--cert and --key belong together; {lacks} is missing.")
    for name, path in (("--cert", cert), ("--key", key)):
        if not path.is_file() or not os.access(path, os.R_OK):
            raise ValueError(f"{name} must be a file in PEM that can be read; {path} is none.")
    check_private("--key", key, say)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(
                f"--key must belong to the certificate; {key.name} and {cert.name} do not match."
            ) from None
        raise ValueError(
            f"--cert and --key must be a certificate, with its chain, and a private key in PEM; {cert.name} or "
            f"{key.name} is not."
        ) from None
    return context


def _no_password() -> str:
    raise ValueError(
        "--key must not have a passphrase, since nobody can be asked for it. Use openssl pkey -in KEY -out PLAIN?"
    )


def check_private(name: str, file: Path, say: Callable[[str], None]) -> None:
    """Refuse a secret that everybody can read, and warn of one that its group can read."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        raise ValueError(f"{name} must be a file that can be read; {file} is none.") from None
    if mode & 0o007:
        raise ValueError(f"{name} must not be accessible to others; {file} has mode {mode:04o}. Use chmod 600 {file}?")
    if mode & 0o070:
        say(f"{file} has mode {mode:04o}: its group can use it. Use chmod 600 {file} unless that is intended.")
