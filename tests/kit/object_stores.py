"""Object stores in processes of a test's own: S3, Google's, Azure's."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.error import HTTPError

import boto3
import pyarrow.fs
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from moto.server import ThreadedMotoServer

from tests.broker.security.securitykit import free_ports

# -- S3 ------------------------------------------------------------------------------------------
# An object store of a test's own that speaks S3: moto's server in a thread, with one bucket.

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


# -- all of them ---------------------------------------------------------------------------------
# Object stores of a test's own, a bucket each: S3 (moto), Google's (fake-gcs-server), Azure's (Azurite).
#
# Programs that this process starts find S3 and Google's store as any other, by their environment. Azure's
# libraries find an emulator by no environment, so its file system is put into this process alone.

PEERS = Path(__file__).parents[2] / ".peers"
START_SECONDS = 30.0
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which its documentation names."""


class Store(NamedTuple):
    """A bucket: its URI as Spark's users write it, and Arrow's file system."""

    uri: str
    files: Any

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        with self.files.open_output_stream(f"{BUCKET}/{key}") as stream:
            stream.write(data)


@contextmanager
def s3() -> Iterator[Store]:
    """Amazon's."""
    with object_store():
        yield Store(f"s3a://{BUCKET}", pyarrow.fs.FileSystem.from_uri(f"s3://{BUCKET}")[0])


@contextmanager
def google() -> Iterator[Store]:
    """Google's, with the login of a service account."""
    (port,), command = free_ports(1), PEERS / "fake-gcs-server"
    endpoint = f"http://localhost:{port}"
    given = ["-scheme", "http", "-port", str(port), "-backend", "memory", "-public-host", f"localhost:{port}"]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        login = Path(folder) / "login.json"
        login.write_text(json.dumps(_service_account(endpoint)))
        patch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", endpoint)
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(login))
        with _running([str(command), *given], f"{endpoint}/storage/v1/b"):
            asked = urllib.request.Request(
                f"{endpoint}/storage/v1/b", json.dumps({"name": BUCKET}).encode(),
                {"Content-Type": "application/json"},
            )  # fmt: skip
            urllib.request.urlopen(asked).close()
            yield Store(f"gs://{BUCKET}", pyarrow.fs.FileSystem.from_uri(f"gs://{BUCKET}")[0])


def _service_account(endpoint: str) -> dict[str, str]:
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account", "private_key": key.decode(), "private_key_id": "1",
        "client_email": "driver@a-project.iam.gserviceaccount.com", "project_id": "a-project",
        "token_uri": f"{endpoint}/token",
    }  # fmt: skip


@contextmanager
def azure() -> Iterator[Store]:
    """Azure's, of an account without folders."""
    (port,), command = free_ports(1), PEERS / "azurite-3.37.0" / "node_modules" / ".bin" / "azurite-blob"
    place = f"127.0.0.1:{port}"
    given = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--blobPort", str(port)]
    with _running([str(command), *given], f"http://{place}/"), pytest.MonkeyPatch.context() as patch:
        files = pyarrow.fs.AzureFileSystem(
            _ACCOUNT, account_key=_KEY, blob_storage_authority=place, dfs_storage_authority=place,
            blob_storage_scheme="http", dfs_storage_scheme="http",
        )  # fmt: skip
        files.create_dir(BUCKET)
        real = pyarrow.fs.FileSystem

        def found(uri: str) -> tuple[Any, str]:
            there, root = real.from_uri(uri)
            return (files if isinstance(there, pyarrow.fs.AzureFileSystem) else there), root

        patch.setattr(pyarrow.fs, "FileSystem", SimpleNamespace(from_uri=found))
        yield Store(f"wasbs://{BUCKET}@{_ACCOUNT}.blob.core.windows.net", files)


@contextmanager
def _running(command: list[str], asked: str) -> Iterator[None]:
    """A server, once it answers anything at all."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(asked):
            assert process.poll() is None and time.monotonic() < deadline, f"{command[0]} does not answer"
            time.sleep(0.1)
        yield
    finally:
        process.kill()  # Azurite would wait for the clients' connections
        process.wait(START_SECONDS)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=1.0).close()
    except HTTPError:
        return True
    except OSError:
        return False
    return True


STORES: dict[str, Callable[[], AbstractContextManager[Store]]] = {"s3": s3, "google": google, "azure": azure}
