"""Places where objects lie under keys, whatever keeps them: S3, GCS, Azure, HTTP, a folder, or an fsspec file system.

Three verbs are enough for a transport: `get` with a limit, `put`, and `create`, which of several callers lets one win.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Protocol

from reprise.refit.transport.common import TransportError, UnreachableError

TIMEOUT = 30.0  # seconds of one request
RETRIES = 2  # within obstore, after the first try; what outlives these is tried again by `transport.tried`
NATIVE = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "http", "https")


class Place(Protocol):
    """Every method raises UnreachableError where the store fails; a put or create may then have happened."""

    name: str

    def get(self, key: str, limit: int) -> bytes | None:
        """The object's bytes, None if there is none; TransportError, before reading it, if it exceeds `limit`."""

    def put(self, key: str, data: bytes) -> None:
        """Write or replace the object."""

    def create(self, key: str, data: bytes) -> bool:
        """Write the object unless there is one; whether it was written."""


def open_place(url: str, timeout: float = TIMEOUT, **options) -> Place:
    """The place that `url` names: `s3://bucket/prefix`, `file:///folder`, a path, or a URL of any fsspec file system.

    Args:
        url: credentials and endpoints come from the environment, as obstore documents (AWS_ENDPOINT_URL and others).
        timeout: seconds of one request to an object store.
        options: further configuration of obstore's store or of the fsspec file system.

    Raises:
        TransportError: a scheme nobody knows, a package it needs is missing, or an option that does not exist.
    """
    scheme = url.split("://", 1)[0] if "://" in url else ""
    try:
        if scheme in NATIVE:
            return ObstorePlace(_native(url, scheme, timeout, options), url)
        if scheme in ("", "file", "local"):
            from obstore.store import LocalStore

            return ObstorePlace(LocalStore(os.path.abspath(url.split("://", 1)[-1]), mkdir=True), url)
        import fsspec

        return FsspecPlace(*fsspec.core.url_to_fs(url, **options))
    except ModuleNotFoundError as error:
        raise TransportError(f"{url}: {error.name} is not installed: pip install 'reprise[transports]'") from None
    except TransportError:
        raise
    except Exception as error:  # obstore and fsspec raise what they like for a bad URL
        raise TransportError(f"{url}: {_first_line(error)}") from error


class ObstorePlace:
    """A place in an obstore store."""

    def __init__(self, store, name: str = ""):
        self.store, self.name = store, name or type(store).__name__

    def get(self, key: str, limit: int) -> bytes | None:
        import obstore

        try:
            found = obstore.get(self.store, key)
            size = found.meta["size"]
            if size > limit:
                raise TransportError(f"{self.name}/{key}: {size} bytes, expected at most {limit}")
            return bytes(found.bytes())
        except FileNotFoundError:
            return None
        except (obstore.exceptions.BaseError, OSError) as error:
            raise UnreachableError(f"{self.name}/{key}: {_first_line(error)}") from error

    def put(self, key: str, data: bytes) -> None:
        self._put(key, data, "overwrite")

    def create(self, key: str, data: bytes) -> bool:
        import obstore

        try:
            self._put(key, data, "create")
        except obstore.exceptions.AlreadyExistsError:
            return False
        return True

    def _put(self, key: str, data: bytes, mode: str) -> None:
        import obstore

        try:
            obstore.put(self.store, key, data, mode=mode, use_multipart=False)
        except obstore.exceptions.AlreadyExistsError:
            raise
        except (obstore.exceptions.BaseError, OSError) as error:
            raise UnreachableError(f"{self.name}/{key}: {_first_line(error)}") from error


class FsspecPlace:
    """A place below `root` of an fsspec file system.

    `create` lets one of several callers win where the file system's exclusive mode does; many only look before they
    write, and readers may see a part of what is being written. `bundle` therefore trusts neither.
    """

    def __init__(self, filesystem, root: str):
        self.filesystem, self.root = filesystem, root.rstrip("/")
        self.name = filesystem.unstrip_protocol(root).rstrip("/")

    def get(self, key: str, limit: int) -> bytes | None:
        try:
            with self.filesystem.open(f"{self.root}/{key}", "rb") as file:
                data = file.read(limit + 1)
        except FileNotFoundError:
            return None
        except Exception as error:
            raise UnreachableError(f"{self.name}/{key}: {_first_line(error)}") from error
        if len(data) > limit:
            raise TransportError(f"{self.name}/{key}: expected at most {limit} bytes")
        return data

    def put(self, key: str, data: bytes) -> None:
        self._pipe(key, data, "overwrite")

    def create(self, key: str, data: bytes) -> bool:
        try:
            self._pipe(key, data, "create")
        except FileExistsError:
            return False
        return True

    def _pipe(self, key: str, data: bytes, mode: str) -> None:
        path = f"{self.root}/{key}"
        try:
            self.filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self.filesystem.pipe_file(path, data, mode=mode)
        except FileExistsError:
            raise
        except Exception as error:
            raise UnreachableError(f"{self.name}/{key}: {_first_line(error)}") from error


def request_options(timeout: float) -> dict:
    """obstore's options that bound one request: its time, and tries after an error of the server or the network."""
    limit = timedelta(seconds=timeout)
    client = {"timeout": limit, "connect_timeout": min(limit, timedelta(seconds=5)), "allow_http": True}
    return {"client_options": client, "retry_config": {"max_retries": RETRIES, "retry_timeout": limit}}


def _native(url: str, scheme: str, timeout: float, options: dict):
    from obstore.store import from_url

    return from_url(url, **request_options(timeout), **options)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:300] or type(error).__name__
