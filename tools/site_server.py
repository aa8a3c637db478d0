"""Serve a folder on 127.0.0.1 the way a static host does: under a sub-path, with its 404 page.

python tools/site_server.py [--port 8000] [--prefix /name/] [FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"


class Server(ThreadingHTTPServer):
    """Takes it calmly when a browser leaves a page before it has read everything."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Report what isn't a lost connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Handler(SimpleHTTPRequestHandler):
    """Files below `prefix`; anything else is answered with the site's 404 page."""

    prefix = "/"
    protocol_version = "HTTP/1.1"  # one connection for many files
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".woff2": "font/woff2",
    }

    def translate_path(self, path: str) -> str:
        """Map a URL path to a file; outside the prefix to a name that can't exist."""
        if not urlsplit(path).path.startswith(self.prefix):
            return str(Path(self.directory) / "__outside_the_prefix__")
        return super().translate_path("/" + path[len(self.prefix) :])

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """As usual, but with 404.html for a page that isn't there."""
        page = Path(self.directory) / "404.html"
        if code != HTTPStatus.NOT_FOUND or not page.exists():
            return super().send_error(code, message, explain)
        # Before `make stamp` the page's links are relative to the site's root, which may lie above.
        base = f'<head><base href="{self.prefix}">'.encode()
        body = page.read_bytes().replace(b"<head>", base)
        self.send_response(HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing for each request."""


def make_server(folder: Path, port: int = 0, prefix: str = "/") -> Server:
    """A server on 127.0.0.1 (port 0: any free one); prefix as "/name/"."""
    prefix = f"/{prefix.strip('/')}/".replace("//", "/")
    handler = type("PrefixedHandler", (Handler,), {"prefix": prefix})
    return Server(("127.0.0.1", port), partial(handler, directory=str(folder)))


@contextlib.contextmanager
def serve(folder: Path, prefix: str = "/") -> Iterator[str]:
    """Serve in the background; gives the address of the site's root, with a slash at the end."""
    server = make_server(folder, prefix=prefix)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    inner = prefix.strip("/")
    try:
        yield f"http://127.0.0.1:{server.server_port}/" + (f"{inner}/" if inner else "")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="Serve the built site on 127.0.0.1.")
    parser.add_argument("folder", type=Path, nargs="?", default=HTML)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--prefix", default="/", help="as a project site has it: /name/")
    args = parser.parse_args()
    if not (args.folder / "index.html").exists():
        parser.error(f"{args.folder} holds no site; run `make book` first")
    server = make_server(args.folder, args.port, args.prefix)
    print(f"http://127.0.0.1:{server.server_port}/{args.prefix.strip('/')}  (Ctrl-C ends it)")
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
