"""What web pages can do to the HTTP port, in a real browser: Chromium, where it is on the path."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import urllib.parse

import pytest

from tests.unit.core.rpc.http_helpers import CANCEL_JOB, GET_JOB, http

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
SECONDS = 60
#: All ways in which a page sends something elsewhere without its user; `/done` hears what a `fetch` could read.
PAGE = """<!doctype html><title>page</title><body><iframe name="sink"></iframe><script>
const port = location.hash.slice(1), hosts = ["127.0.0.1", "localhost"], query = new URLSearchParams(
  {connect: "v1", encoding: "json", message: '{"jobId":"j1"}'});
const loaded = (node) => new Promise((done) => { node.onload = node.onerror = done; document.body.append(node); });
const element = (name, more) => loaded(Object.assign(document.createElement(name), more));
const read = async (url, options) => {
  try { const answer = await fetch(url, options); return answer.status + " " + await answer.text(); }
  catch (error) { return "unread"; }
};
const form = (action, enctype) => {
  const made = Object.assign(document.createElement("form"), {action, method: "POST", enctype, target: "sink"});
  made.append(Object.assign(document.createElement("input"), {name: '{"jobId":"', value: 'j1"}'}));
  document.body.append(made);
  return new Promise((done) => { document.querySelector("iframe").onload = done; made.submit(); });
};
(async () => {
  const told = [], body = '{"jobId":"j1"}', json = {"content-type": "application/json"};
  for (const host of hosts) {
    const url = `http://${host}:${port}`, get = `${url}GET_JOB?${query}`;
    await element("img", {src: get});
    await element("script", {src: get});
    await element("link", {rel: "stylesheet", href: get});
    await element("iframe", {src: get});
    await element("iframe", {sandbox: "allow-scripts", srcdoc: `<script>fetch(${JSON.stringify(get)})
      .finally(() => fetch("${url}CANCEL_JOB", {method: "POST", body: "{}"}))<` + `/script>`});
    for (const method of ["GET", "HEAD", "POST"])
      await read(get, {method, mode: "no-cors", body: method === "POST" ? body : undefined});
    await form(`${url}CANCEL_JOB`, "text/plain");
    await form(`${url}CANCEL_JOB`, "application/x-www-form-urlencoded");
    navigator.sendBeacon(`${url}CANCEL_JOB`, body);
    await read(`${url}CANCEL_JOB`, {method: "POST", mode: "no-cors", body});
    told.push(await read(get), await read(`${url}GET_JOB`, {method: "POST", headers: json, body}),
              await read(`${url}GET_JOB`, {method: "PUT", headers: json, body}));
  }
  await fetch("/done", {method: "POST", body: JSON.stringify(told)});
})();
</script>""".replace("GET_JOB", GET_JOB).replace("CANCEL_JOB", CANCEL_JOB)


class Pages:
    """A site on loopback, with the page."""

    def __init__(self) -> None:
        self.told: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.port = 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = next((int(line.split()[1]) for line in head.lower().split("\r\n") if "content-length:" in line), 0)
        content = await reader.readexactly(size)
        if head.startswith("POST /done"):
            self.told.set_result(json.loads(content))
        page = PAGE.encode() if head.startswith("GET / ") else b""
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/html\r\n")
        writer.write(f"content-length: {len(page)}\r\n\r\n".encode() + page)
        writer.close()


@contextlib.asynccontextmanager
async def chromium(folder, url, *more, **pipes):
    asked = (*FLAGS, f"--user-data-dir={folder}", *more, url)
    home = {**os.environ, "HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *asked, env=home, stderr=asyncio.subprocess.DEVNULL, start_new_session=True, **pipes
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def test_no_page_that_is_not_named_reaches_a_method(tmp_path):
    async def whole():
        async with Pages() as pages, http() as (_, up, service):
            url = f"http://localhost:{pages.port}/#{up.http.port}"
            async with chromium(tmp_path, url), asyncio.timeout(SECONDS):
                told = await pages.told
            assert set(told) == {"unread"}
            assert (service.seen, service.ended) == ([], [])

    asyncio.run(whole())


def test_a_page_of_a_named_origin_calls_and_reads(tmp_path):
    """As well proof that the page above does reach the port."""

    async def whole():
        async with Pages() as pages:
            origin = f"http://localhost:{pages.port}"
            async with http({"http_origins": origin}) as (_, up, service):
                async with chromium(tmp_path, f"{origin}/#{up.http.port}"), asyncio.timeout(SECONDS):
                    told = await pages.told
                assert [text.partition(" ")[0] for text in told] == ["200", "200", "unread"] * 2
                assert len(service.seen) == 2 * 2, "what has no Origin, as an image, is no one's"

    asyncio.run(whole())


def test_a_name_that_was_pointed_at_this_machine_reads_nothing(tmp_path):
    async def whole():
        async with http() as (_, up, service):
            query = urllib.parse.urlencode({"encoding": "json", "message": '{"jobId":"j1"}'})
            url = f"http://attacker.example:{up.http.port}{GET_JOB}?{query}"
            rebound = "--host-resolver-rules=MAP attacker.example 127.0.0.1"
            dumped = {"stdout": asyncio.subprocess.PIPE}
            async with chromium(tmp_path, url, rebound, "--dump-dom", **dumped) as browser, asyncio.timeout(SECONDS):
                page, _ = await browser.communicate()
            assert b"HOST_NOT_LOCAL" in page
            assert service.seen == []

    asyncio.run(whole())
