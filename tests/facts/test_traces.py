"""Readers that accept rubbish, lose digits or pass a stand-in for a trace; downloads that leave a
broken file under the final name."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from minilab.facts import trace_fetch
from minilab.facts.errors import InputError
from minilab.facts.traces import load, load_file

SAMPLES = Path(__file__).with_name("data") / "malformed.json"
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
DAY = "2023-11-16 18:15:46."
CSV = f"{HEADER}{DAY}6805900,374,44\n{DAY}6805901,10,1\n2023-11-16 18:16:00.0000000,396,109\n"
ROW = '{"timestamp": 27, "input_length": 600, "output_length": 5, "hash_ids": [7, 9]}\n'
JSONL = ROW + '{"timestamp": 3027, "input_length": 512, "output_length": 9, "hash_ids": [7]}\n'


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was fetched on this machine before does not count, and no proxy is asked."""
    monkeypatch.setenv("MINILAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "trace.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_azure_rows(tmp_path: Path) -> None:
    """Parsing seconds as floats of a day loses the 100 ns digits."""
    work = load_file(write(tmp_path, CSV)).validate()
    assert [r[:4] for r in work.requests] == [
        (0, 0.0, 374, 44),
        (1, 1e-7, 10, 1),
        (2, 13.31941, 396, 109),
    ]
    assert {r.prompt for r in work.requests} == {None}
    assert work.source["sha256"] == hashlib.sha256(CSV.encode()).hexdigest()


def test_mooncake_rows(tmp_path: Path) -> None:
    """A last block of full length makes the prompt longer than it is."""
    work = load_file(write(tmp_path, JSONL)).validate()
    assert [r[:5] for r in work.requests] == [
        (0, 0.0, 600, 5, ((7, 512), (9, 88))),
        (1, 3.0, 512, 9, ((7, 512),)),
    ]


@pytest.mark.parametrize("text", [CSV, JSONL])
@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.rstrip() + b"\n\n \n",
        lambda data: data.rstrip(),
        gzip.compress,
        lambda data: data.replace(b"00,3", b"00+00:00,3") if b"2023" in data else data,
    ],
)
def test_the_same_in_other_clothes(
    tmp_path: Path, text: str, change: Callable[[bytes], bytes]
) -> None:
    """Editors and tools add byte order marks, CRLF, empty ends, gzip."""
    plain = load_file(write(tmp_path, text))
    assert load_file(write(tmp_path, change(text.encode()))).hash() == plain.hash()
    assert (
        load_file(write(tmp_path, change(text.encode())), limit=1).hash() == plain.limit(1).hash()
    )


BASE = {"": "", "header": HEADER, "csv": CSV, "jsonl": JSONL}
MALFORMED = [
    *((BASE[c["base"]] + c["then"], c["row"], c["says"]) for c in json.loads(SAMPLES.read_text())),
    (f"{CSV}2023-11-16 18:17:00.0000000,{'9' * 5000},1\n", 5, "mend"),
    (JSONL + "[" * 100_000 + "\n", 3, "one object"),
    (CSV.encode() + b"\xff\xfe\x00", 5, "byte 0xff"),
    (CSV.encode() + b"PK\x00\x00", 5, "zero byte"),
    (CSV.encode("utf-16"), 1, "UTF-8"),
    (gzip.compress(CSV.encode(), mtime=0)[:-9], None, "damaged gzip"),
    (gzip.compress(CSV.encode(), mtime=0)[:20] + b"\0" * 40, None, "damaged gzip"),
]


@pytest.mark.parametrize(("content", "row", "words"), MALFORMED)
def test_malformed_files_name_the_row(
    tmp_path: Path, content: str | bytes, row: int | None, words: str
) -> None:
    """A traceback, a silent skip of the row, or a message without the place to look at."""
    path = write(tmp_path, content)
    with pytest.raises(InputError) as error:
        load_file(path)
    message = str(error.value)
    where = str(path) if row is None else f"{path}:{row}"
    assert message.startswith(f"{where}: ") and words in message
    assert "\n" not in message and message.count(";") >= 2 and len(message) < len(where) + 300


def test_what_is_not_there(tmp_path: Path) -> None:
    """Unknown names, formats and folders as tracebacks."""
    for call, words in (
        (lambda: load("azure-conv"), "azure-conv-2023"),
        (lambda: load("zzz"), "synthetic"),
        (lambda: load_file(tmp_path / "no.csv"), "No such file"),
        (lambda: load_file(tmp_path), "directory"),
        (lambda: load_file(write(tmp_path, CSV), format="parquet"), "mooncake-jsonl"),
        (lambda: load_file(write(tmp_path, CSV), format="mooncake-jsonl"), "one object"),
        (lambda: load_file(write(tmp_path, CSV), limit=0), "limit 0"),
        (lambda: load("synthetic", limit=0), "0"),
    ):
        with pytest.raises(InputError, match=words) as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", list(trace_fetch.catalogue()))
def test_the_published_statistics(data_folder: Callable[[str], Path], name: str) -> None:
    """A reader that skips rows, or takes other columns, can't agree with every published figure."""
    trace = trace_fetch.entry(name)
    folder = data_folder(Path(trace["file"]).parent.name).parent
    work = load(name, folder=folder).validate()
    assert work.source["kind"] == "real" and work.source["sha256"] == trace["sha256"]
    assert (folder / trace["file"]).stat().st_size == trace["bytes"]
    for key, figure in work.stats().items():
        known = trace["statistics"][key]
        if isinstance(figure, dict):
            known = {name: known[name] for name in figure}
        assert figure == pytest.approx(known, rel=1e-5), key
    assert load(name, 100, folder).hash() == work.limit(100).hash()


class Origin(HTTPServer):
    """A server on 127.0.0.1 that can hang up half-way, ignore ranges or send other bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.body = b"".join(b"%07d\n" % k for k in range(40_000))
        self.cut: int | None = None
        self.ranges, self.status = True, 200
        self.asked: list[str | None] = []


class Answer(BaseHTTPRequestHandler):
    server: Origin

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        start = int(wanted[6:-1]) if wanted and server.ranges else 0
        status = server.status if server.status != 200 else 206 if start else 200
        self.send_response(416 if start > len(server.body) else status)
        if start:
            self.send_header("Content-Range", f"bytes {start}-*/{len(server.body)}")
        self.send_header("Content-Length", str(len(server.body) - start))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(server.body[start : server.cut])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def origin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Origin]:
    pytest.importorskip("pooch", reason="needs pooch")
    with Origin() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        trace = {
            "file": "folder/small.csv",
            "url": f"http://127.0.0.1:{server.server_port}/small.csv",
            "sha256": hashlib.sha256(server.body).hexdigest(),
            "bytes": len(server.body),
        }
        monkeypatch.setattr(trace_fetch, "catalogue", lambda: {"small": trace})
        yield server
        server.shutdown()


def fetch() -> Path:
    return trace_fetch.fetch("small", progress=False)


def test_fetch_and_keep(origin: Origin) -> None:
    """A second call must not download again, nor trust a file that has changed since."""
    path = fetch()
    assert path == trace_fetch.cache_folder() / "folder" / "small.csv"
    assert path.read_bytes() == origin.body
    assert fetch() == path and origin.asked == [None]
    path.write_bytes(b"damaged")
    assert fetch().read_bytes() == origin.body and len(origin.asked) == 2
    assert [p.name for p in path.parent.iterdir()] == ["small.csv"]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_goes_on(origin: Origin, ranges: bool) -> None:
    """Half a file under the final name, or the second half appended to a whole one."""
    origin.cut = 200_000
    with pytest.raises(InputError, match=r"interrupted at 200000 of 320000 bytes.*again"):
        fetch()
    assert not (trace_fetch.cache_folder() / "folder" / "small.csv").exists()
    origin.cut, origin.ranges = None, ranges
    assert fetch().read_bytes() == origin.body
    assert origin.asked == [None, "bytes=200000-"]


@pytest.mark.parametrize("size", [100, 320_000, 400_000])
def test_a_spoilt_part_is_dropped(origin: Origin, size: int) -> None:
    """Bytes of something else in the part file would fail the hash at every later attempt."""
    part = trace_fetch.cache_folder() / "folder" / "small.csv.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * size)
    assert fetch().read_bytes() == origin.body and not part.exists()


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [(b"y" * 320_000, 200, "sha256"), (b"y" * 400_000, 200, "not the file"), (b"", 404, "404")],
)
def test_wrong_answers_leave_nothing(origin: Origin, body: bytes, status: int, words: str) -> None:
    """An error page, or another file, kept as if it were the trace."""
    origin.body, origin.status = body, status
    with pytest.raises(InputError, match=words) as error:
        fetch()
    assert "\n" not in str(error.value) and "MINILAB_DATA" in str(error.value)
    assert not list((trace_fetch.cache_folder() / "folder").iterdir())


def test_offline_says_what_to_do(origin: Origin) -> None:
    """A page of tracebacks from urllib and pooch, with no network to be had."""
    origin.shutdown()
    origin.server_close()
    with pytest.raises(InputError, match=r"no connection.*MINILAB_DATA/folder/small.csv") as error:
        fetch()
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="made up"):
        trace_fetch.fetch("synthetic")
