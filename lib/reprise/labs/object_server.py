"""An object store in memory behind the part of the S3 protocol that the transports use, for experiments that must not
wait for a real server: PUT with If-Match and If-None-Match, GET, HEAD. `labs.seaweed` starts a real one."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "127.0.0.1"
OBJECT_BYTES = 1 << 28


class ObjectServer(ThreadingHTTPServer):
    """Listens on the loopback from the beginning of a block to its end; `port` is where."""

    daemon_threads = True

    def __init__(self):
        super().__init__((HOST, 0), _Handler)
        self.port = self.server_address[1]
        self.objects: dict[str, bytes] = {}
        self.mutex = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> ObjectServer:
        self._thread.start()
        return self

    def __exit__(self, *exc) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(5)

    def handle_error(self, request, client_address) -> None:
        pass  # a client that was cut off; it will try again


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    timeout = 60

    def do_PUT(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > OBJECT_BYTES:
            self._reply(411 if not size else 413)
            self.close_connection = True
            return
        data = self.rfile.read(int(size))
        with self.server.mutex:
            held = self.server.objects.get(self.path)
            expected, unless = self.headers.get("If-Match"), self.headers.get("If-None-Match")
            if (unless == "*" and held is not None) or (expected and (held is None or expected != _tag(held))):
                self._reply(412)
                return
            self.server.objects[self.path] = data
        self._reply(200, tag=_tag(data))

    def do_GET(self) -> None:
        with self.server.mutex:
            held = self.server.objects.get(self.path)
        if held is None:
            self._reply(404)
        else:
            self._reply(200, held, _tag(held))

    do_HEAD = do_GET

    def _reply(self, status: int, data: bytes = b"", tag: str = "") -> None:
        self.send_response_only(status)
        if tag:
            self.send_header("ETag", tag)
            self.send_header("Last-Modified", self.date_time_string())
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
