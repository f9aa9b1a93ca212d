"""A schema registry to try Avro with: ids by schema, in memory, and nothing else of the interface.

python examples/registry.py --port 8081
"""

from __future__ import annotations

import argparse
import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class SmallRegistry:
    """A registry at `url`. `asked` has all requests so far. A context manager."""

    def __init__(self, port: int = 0) -> None:
        self.schemas: list[str] = []
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(f"GET {self.path}")
                number = int(self.path.removeprefix("/schemas/ids/"))
                if 0 < number <= len(registry.schemas):
                    self.answer(200, {"schema": registry.schemas[number - 1]})
                else:
                    self.answer(404, {"error_code": 40403, "message": f"Schema {number} not found"})

            def do_POST(self) -> None:
                registry.asked.append(f"POST {self.path}")
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.answer(200, {"id": registry.number(body["schema"])})

            def answer(self, status: int, said: dict[str, Any]) -> None:
                data = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def number(self, schema: str) -> int:
        """The id of a schema."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        return self.schemas.index(schema) + 1

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def serve(self) -> None:
        """Serve until Ctrl-C."""
        with suppress(KeyboardInterrupt):
            self._server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="A schema registry in memory, to try Avro with.")
    parser.add_argument("--port", type=int, default=8081)
    registry = SmallRegistry(parser.parse_args().port)
    print(f"schemas are at {registry.url}, until Ctrl-C", flush=True)
    registry.serve()


if __name__ == "__main__":
    main()
