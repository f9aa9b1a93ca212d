"""An object store of a test's own that speaks S3: moto's server in a thread, with one bucket."""

from __future__ import annotations

import logging
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "checkpoints"
REGION = "eu-central-1"
_KEYS = {"AWS_ACCESS_KEY_ID": "a-key", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_REGION": REGION}


class ObjectStore(NamedTuple):
    """Where it listens."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """How programs find it, as the AWS SDKs have it."""
        return {"AWS_ENDPOINT_URL": self.endpoint, **_KEYS}

    def names(self) -> list[str]:
        """The names of all objects."""
        listed = self._client().list_objects_v2(Bucket=BUCKET)
        return [found["Key"] for found in listed.get("Contents", [])]

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        self._client().put_object(Bucket=BUCKET, Key=key, Body=data)

    def _empty(self) -> None:
        """moto keeps its buckets in the process, also those of a server that was stopped."""
        urllib.request.urlopen(f"{self.endpoint}/moto-api/reset", data=b"").close()

    def _client(self) -> Any:
        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name=REGION,
            aws_access_key_id="a-key", aws_secret_access_key="a-secret",
        )  # fmt: skip


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """The store; while it is there, programs that this process starts find it by their environment."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it logs every request
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    store = ObjectStore(f"http://{host}:{port}")
    before = {name: os.environ.get(name) for name in store.environment}
    os.environ.update(store.environment)
    try:
        store._empty()
        store._client().create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield store
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        server.stop()
