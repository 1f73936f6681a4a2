"""A chat endpoint on the loopback interface that answers from a script."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(text, **choice):
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop", **choice}]} | {
        "usage": usage
    }


class Server(ThreadingHTTPServer):
    """Answers from a script of (status, headers, body); the last entry stands for all that follow."""

    def __init__(self, script):
        self.script, self.seen, self.under_way, self.most = list(script), [], 0, 0
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.seen.append((self.path, dict(self.headers), body))
            entry = server.script.pop(0) if len(server.script) > 1 else server.script[0]
            server.under_way += 1
            server.most = max(server.most, server.under_way)
        status, headers, content = entry(body) if callable(entry) else entry
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        with server.lock:
            server.under_way -= 1

    def log_message(self, *arguments):
        pass


@contextmanager
def serving(*script):
    """A server that runs until the block ends."""
    server = Server(script)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
