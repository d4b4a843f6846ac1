"""The real Objects: S3 and what is compatible with it, Google's and Microsoft's stores, or a folder, by obstore.

Rules
- obstore is imported when the first store is opened, in a thread: who has no tier pays nothing and needs no package.
- Its own retries are off. Who calls decides what is tried again, and how often.
- A text of obstore may hold a query string, and so a key: only its first line goes into errors, without query strings.
- An upload that is cancelled ends by an error of its source, never by dropping it: dropped, it would leave its parts in
  the bucket, unseen and paid for. A killed process does leave them: that is what a lifecycle rule of the bucket is for.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import (
    Bytes,
    NoObjectError,
    ObjectFacts,
    StoreAwayError,
    StoreError,
    StoreLimits,
    StoreRefusalError,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_SCHEMES = ("s3", "gs", "az", "file")
# Compiled when they are first used, and not at every start.
_STATUS = r"status code: (\d{3})"
_QUERY = r"\?\S+"
_TEXT_MAX_CHARACTERS = 300
# Statuses below 500 that may be over a little later.
_PASSING_STATUSES = (408, 425, 429)
_LIST_PIECE = 1000


class RealObjectStores:
    async def open(self, url: str, options: Mapping[str, str], limits: StoreLimits) -> RealObjects:
        _check_url(url)
        # Loading the library takes tens of milliseconds.
        store = await asyncio.to_thread(_make_store, url, options, limits)
        return RealObjects(store, url, limits)


class RealObjects:
    """Made by RealObjectStores."""

    def __init__(self, store: ObjectStore, url: str, limits: StoreLimits) -> None:
        self._store = store
        self._url = url
        self._limits = limits
        self._ending: set[asyncio.Task[Any]] = set()  # Uploads that were cancelled, until their parts are gone.

    async def put(self, name: str, parts: AsyncIterator[Bytes], size_bytes: int) -> None:
        source = _Source(parts, size_bytes)
        upload = asyncio.create_task(self._upload(name, source, size_bytes))
        try:
            await asyncio.shield(upload)
        except asyncio.CancelledError:
            source.stop()
            self._ending.add(upload)
            upload.add_done_callback(self._forget)
            raise

    async def _upload(self, name: str, source: _Source, size_bytes: int) -> None:
        import obstore

        limits = self._limits
        try:
            if size_bytes <= limits.part_bytes:
                # Of some megabytes a join takes milliseconds, and lets other threads run.
                parts = [bytes(part) async for part in source]
                whole = parts[0] if len(parts) == 1 else await asyncio.to_thread(b"".join, parts)
                await obstore.put_async(self._store, name, whole, use_multipart=False)
            else:
                await obstore.put_async(
                    self._store,
                    name,
                    source,
                    use_multipart=True,
                    chunk_size=limits.part_bytes,
                    max_concurrency=limits.parts_in_flight,
                )
        except Exception as error:
            if source.error is not None:
                raise source.error from None
            raise self._translate(error, f"{name} cannot be written") from None

    def _forget(self, upload: asyncio.Task[Any]) -> None:
        self._ending.discard(upload)
        if not upload.cancelled():
            upload.exception()  # It was told to fail.

    async def get(self, name: str, start: int, end: int) -> Bytes:
        import obstore

        try:
            return memoryview(await obstore.get_range_async(self._store, name, start=start, end=end))
        except Exception as error:
            raise self._translate(error, f"{name} cannot be read") from None

    async def head(self, name: str) -> ObjectFacts:
        import obstore

        try:
            return _facts(await obstore.head_async(self._store, name))
        except Exception as error:
            raise self._translate(error, f"{name} cannot be asked for") from None

    async def list(self, prefix: str) -> AsyncIterator[Sequence[ObjectFacts]]:
        import obstore

        try:
            async for piece in obstore.list(self._store, prefix or None, chunk_size=_LIST_PIECE):
                yield [_facts(each) for each in piece]
        except Exception as error:
            raise self._translate(error, f"{prefix or 'it'} cannot be listed") from None

    async def delete(self, names: Sequence[str]) -> None:
        import obstore

        try:
            await obstore.delete_async(self._store, list(names))
        except FileNotFoundError as error:
            if len(names) == 1:
                missing = self._translate(error, f"{names[0]} cannot be deleted")
                if not isinstance(missing, NoObjectError):
                    raise missing from None
                return
            # A folder gives up at the first that is not there.
            for name in names:
                await self.delete([name])
        except Exception as error:
            raise self._translate(error, f"{names[0]} and {len(names) - 1} others cannot be deleted") from None

    def _translate(self, error: Exception, problem: str) -> StoreError:
        from obstore import exceptions

        text = re.sub(_QUERY, "", str(error).partition("\n")[0])[:_TEXT_MAX_CHARACTERS]
        whole = f"{self._url}: {problem}: {text}"
        if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
            return StoreRefusalError(f"{whole} The bucket does not exist: make it, or correct the address.")
        if isinstance(error, FileNotFoundError):
            return NoObjectError(whole)
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError | PermissionError):
            return StoreRefusalError(
                f"{whole} Check the credentials, and whether they may read, write, list and delete."
            )
        if "redirect without LOCATION" in str(error):
            return StoreRefusalError(f"{whole} The bucket is in another region: set rsm.config.region.")
        status = re.search(_STATUS, str(error))
        if status is not None and 400 <= int(status[1]) < 500 and int(status[1]) not in _PASSING_STATUSES:
            return StoreRefusalError(f"{whole} The store answers {status[1]}.")
        return StoreAwayError(whole)


class _Source:
    """The parts of an upload, which `stop` ends by an error, wherever they are."""

    def __init__(self, parts: AsyncIterator[Bytes], size_bytes: int) -> None:
        self.error: Exception | None = None  # What the parts have raised.
        self._parts = parts
        self._left_bytes = size_bytes
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    def __aiter__(self) -> _Source:
        return self

    async def __anext__(self) -> Bytes:
        if self._stopped.is_set():
            raise StoreAwayError("the upload was cancelled")
        following = asyncio.ensure_future(anext(self._parts, None))
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({following, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                raise StoreAwayError("the upload was cancelled")
            part = following.result()
            if part is None:
                if self._left_bytes:
                    raise StoreAwayError(f"{self._left_bytes} bytes less than were announced")
                raise StopAsyncIteration
            self._left_bytes -= len(part)
            return part
        except Exception as error:
            if not isinstance(error, StopAsyncIteration):
                self.error = error
            raise
        finally:
            stopped.cancel()
            following.cancel()


def _check_url(url: str) -> None:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise _invalid(
            f"{_shown(url)} is no address of a store: write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, "
            "az://CONTAINER/PREFIX or file:///FOLDER"
        )
    if scheme == "file":
        if not rest.startswith("/") or rest == "/":
            raise _invalid(f"{url} names no folder: write file:///FOLDER, with three slashes")
    elif not rest.partition("/")[0]:
        raise _invalid(f"{url} names no bucket: write {scheme}://BUCKET/PREFIX")
    elif "@" in rest.partition("/")[0] or "?" in rest:
        raise _invalid(
            f"{_shown(url)}: credentials and options do not belong into the address. They come from the environment, "
            "or from settings that begin with rsm.config."
        )


def _shown(url: str) -> str:
    """Without what may be a password."""
    return re.sub(_QUERY, "", re.sub(r"//[^/@]*@", "//", url))


def _make_store(url: str, options: Mapping[str, str], limits: StoreLimits) -> ObjectStore:
    from datetime import timedelta

    try:
        from obstore import exceptions
        from obstore.store import LocalStore, from_url
    except ImportError:
        raise _invalid("remote storage needs the package obstore: pip install 'tailrace[tier]'") from None
    try:
        if url.startswith("file://"):
            if options:
                raise _invalid(f"a folder has no options: take away rsm.config.{min(options)}")
            return LocalStore.from_url(url, mkdir=True)
        timeout = timedelta(milliseconds=limits.request_timeout_ms)
        settings: dict[str, Any] = {
            "config": dict(options),
            "client_options": {
                "timeout": timeout,
                "connect_timeout": timeout,
                # Plain HTTP is only for an endpoint that was given so.
                "allow_http": options.get("endpoint", "").startswith("http://"),
            },
            "retry_config": {"max_retries": 0, "retry_timeout": timeout},
        }
        return from_url(url, **settings)
    except exceptions.UnknownConfigurationKeyError as error:
        key = re.search(r"'([^']*)'", str(error))
        raise _invalid(f"rsm.config.{key[1] if key else '?'} is no setting of the store {url}") from None
    except (exceptions.BaseError, ValueError, OSError) as error:
        text = re.sub(_QUERY, "", str(error).partition("\n")[0])[:_TEXT_MAX_CHARACTERS]
        raise _invalid(f"{url} cannot be used: {text}") from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _facts(meta: Any) -> ObjectFacts:
    return ObjectFacts(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))
