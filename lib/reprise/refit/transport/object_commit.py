"""The conditional puts that a commit record needs, by obstore: create (If-None-Match) and update (If-Match)."""

from __future__ import annotations

from reprise.errors import RepriseError
from reprise.refit.recovery.commit_log import PreconditionFailed

RECORD_BYTES = 1 << 16


class ObstoreObjects:
    """`commit_log.ObjectStore` in an obstore store, for `ObjectCommitLog(ObstoreObjects(store), key)`.

    The store must be S3, Azure or memory; a server behind the S3 protocol must enforce If-Match and If-None-Match,
    which AWS and SeaweedFS do. A file has no tags: `FileCommitLog` is for folders.
    """

    def __init__(self, store):
        self.store = store

    def get(self, key: str) -> tuple[bytes, str] | None:
        import obstore

        try:
            found = obstore.get(self.store, key)
            if found.meta["size"] > RECORD_BYTES:
                raise RepriseError(f"{key}: {found.meta['size']} bytes, expected a record of at most {RECORD_BYTES}")
            return bytes(found.bytes()), _tag(key, found.meta["e_tag"])
        except FileNotFoundError:
            return None
        except obstore.exceptions.BaseError as error:
            raise OSError(f"{key}: {error}") from error

    def put(self, key: str, data: bytes, *, if_match: str | None) -> None:
        import obstore

        mode = "create" if if_match is None else {"e_tag": if_match}
        try:
            obstore.put(self.store, key, data, mode=mode, use_multipart=False)
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError) as error:
            raise PreconditionFailed(f"{key}: {_short(error)}") from None
        except (obstore.exceptions.NotSupportedError, NotImplementedError):
            raise RepriseError(f"{self.store}: no conditional update, expected S3, Azure or memory") from None
        except obstore.exceptions.BaseError as error:
            raise OSError(f"{key}: {_short(error)}") from error


def _tag(key: str, tag: str | None) -> str:
    if not tag:
        raise RepriseError(f"{key}: the store gives no entity tag, expected one that a conditional put can name")
    return tag


def _short(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:300]
