"""The page itself, and the policy that keeps anything else from running in it."""

import base64
import hashlib
from html import escape
from importlib.resources import files

from fedgauss.report.page import palette_css


class LivePage:
    """The page of one run, `html`, and the Content-Security-Policy that belongs to it, `policy`.

    Script and style are known by their hashes, so nothing that a log smuggles in could run; nothing is loaded from
    anywhere but the watcher itself.
    """

    def __init__(self, title: str) -> None:
        here = files("fedgauss.integrations.live")
        scripts = ("pen.js", "chart.js", "heat.js", "link.js", "page.js")
        style = palette_css() + here.joinpath("page.css").read_text(encoding="utf-8")
        script = "".join(here.joinpath(name).read_text(encoding="utf-8") for name in scripts)
        body = here.joinpath("page.html").read_text(encoding="utf-8")
        name = escape(title)
        self.html = (
            '<!DOCTYPE html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<title>{name}</title>\n<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n'
            f"<body>\n{body.replace('TITLE', name)}<script>{script}</script>\n</body>\n</html>\n"
        ).encode(errors="replace")  # a file's name need not be UTF-8
        self.policy = (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
