"""An S3 server on loopback, as slow as a distant one, that counts what it is asked."""

import re
import threading
import time
from collections import Counter
from contextlib import contextmanager

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

LATENCY = 0.02
"""Seconds that each answer takes at least."""


class _Silent(WSGIRequestHandler):
    """Logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, type, message, *args):
        pass


class Server:
    """Answers of moto behind a delay; ``asked`` counts (method, path) since it was cleared.

    ``seen`` has the access key and the bucket of every request.
    """

    def __init__(self, latency=LATENCY):
        self.latency, self.asked, self.seen = latency, Counter(), Counter()
        self._lock = threading.Lock()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_Silent
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, environ, start_response):
        with self._lock:
            path = environ["PATH_INFO"]
            self.asked[environ["REQUEST_METHOD"], path] += 1
            signed = re.search(r"Credential=([^/]*)/", environ.get("HTTP_AUTHORIZATION", ""))
            self.seen[signed and signed[1], path.split("/")[1]] += 1
        time.sleep(self.latency)
        return self._app(environ, start_response)

    @contextmanager
    def counted(self):
        """The requests of a block."""
        with self._lock:
            self.asked.clear()
        found = Counter()
        yield found
        with self._lock:
            found.update(self.asked)

    @contextmanager
    def running(self):
        """Serve for the duration of a block."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()
