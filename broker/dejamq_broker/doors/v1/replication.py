"""The Replication service and its caller: a slave's questions and its stream, and the master's answers to both."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from dejamq_proto import ha_pb2 as pb
from dejamq_proto.account import Account
from dejamq_proto.codes import BrokerUnavailable, DejamqError
from dejamq_proto.ha_pb2_grpc import ReplicationStub
from dejamq_proto.wire.calling import call, dial, error_from
from dejamq_proto.wire.replication import LogSlice
from dejamq_proto.wire.tls import ClientTls

from dejamq_broker.base.identity import Site
from dejamq_broker.replication.common_end import MOST, LogExtent
from dejamq_broker.replication.copied_tables import CopiedTables
from dejamq_broker.replication.master import Feed, Replication, SlaveName
from dejamq_broker.replication.slave import MasterLog

Context = grpc.aio.ServicerContext[Any, Any]
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs forgot it
NAME = "dejamq.v1.Replication"
ASK_MS = 10_000
"""Looking for damage, or at bytes that are not in memory, takes the master a while."""


class Gone(BrokerUnavailable):
    """The slave's side of a stream is over: nobody is there to hear why."""


class ReplicationService:
    """RPC of slaves. Errors have a code of ours in the trailers; a stream also ends after too much silence."""

    def __init__(self, replication: Replication, tables: CopiedTables) -> None:
        self._replication, self._tables = replication, tables
        self._silence_s = replication.config.ha_housekeeping_interval_ms / 1000

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """Slices of the log leave as raw bytes written by ``wire/replication.py``."""
        return grpc.method_handlers_generic_handler(NAME, {
            "LogExtent": grpc.unary_unary_rpc_method_handler(
                self.LogExtent, pb.LogExtentRequest.FromString, pb.LogExtentResponse.SerializeToString
            ),
            "LogDigest": grpc.unary_unary_rpc_method_handler(
                self.LogDigest, pb.LogDigestRequest.FromString, pb.LogDigestResponse.SerializeToString
            ),
            "CopyTable": grpc.unary_unary_rpc_method_handler(
                self.CopyTable, pb.CopyTableRequest.FromString, pb.CopyTableResponse.SerializeToString
            ),
            "CopyLog": grpc.stream_stream_rpc_method_handler(self.CopyLog, pb.SlaveReport.FromString),
        })  # fmt: skip

    async def LogExtent(self, request: pb.LogExtentRequest, _: Context) -> pb.LogExtentResponse:
        """Refused with INVALID_PARAMETER for a slave of another broker, NO_PERMISSION at a slave."""
        replication, store = self._replication, self._replication.store
        replication.admit(_name(request.slave))
        damages = await asyncio.to_thread(store.copy.damages_from, store.log_min, request.suspect_offset)
        return pb.LogExtentResponse(
            min_offset=store.log_min, max_offset=store.log_max, file_size=store.copy.file_size,
            boot_id=replication.boot_id, replica=replication.replica,
            damaged=[pb.DamagedPart(log_offset=damage.log_offset, end=damage.end) for damage in damages],
        )  # fmt: skip

    async def LogDigest(self, request: pb.LogDigestRequest, _: Context) -> pb.LogDigestResponse:
        """Refused with SERVICE_NOT_AVAILABLE when this process is not the one that was asked for its extent."""
        self._replication.check_boot(request.boot_id)
        copy = self._replication.store.copy
        size, crc = await asyncio.to_thread(copy.digest, max(0, request.log_offset), min(request.size, MOST))
        return pb.LogDigestResponse(size=size, crc=crc)

    async def CopyTable(self, request: pb.CopyTableRequest, _: Context) -> pb.CopyTableResponse:
        """Refused as ``LogExtent``."""
        self._replication.admit(_name(request.slave))
        content = self._tables.tell(request.table, request.known_version)
        return pb.CopyTableResponse(content=content, log_end=self._replication.store.log_max)

    async def CopyLog(self, reports: AsyncIterator[pb.SlaveReport], context: Context) -> None:
        """Held open by the slave. Both directions are watched: a peer may be gone without a word in either.

        Refused with SERVICE_NOT_AVAILABLE when the slave has to compare again, INVALID_PARAMETER for values that cannot
        be.
        """
        reports = aiter(reports)
        first = await self._report(reports)
        self._replication.check_boot(first.master_boot_id)
        feed = self._replication.connect(_name(first.slave), first.log_offset)
        end: DejamqError = Gone("the connection was lost")
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read(feed, reports))
                while (found := await feed.next()) is not None:
                    await _write(context, found)
                reader.cancel()
                end = BrokerUnavailable("the master closes", definite=False)
        except* DejamqError as errors:
            end = _first(errors)
        finally:
            feed.end(end)
        if isinstance(end, Gone):
            raise asyncio.CancelledError  # which is how gRPC itself ends a call that nobody listens to
        raise end

    async def _read(self, feed: Feed, reports: AsyncIterator[pb.SlaveReport]) -> None:
        """Ends the feed when the slave's side ends. A write under way is left alone: gRPC takes no status after it."""
        try:
            while True:
                feed.acknowledged((await self._report(reports)).log_offset)
        except DejamqError as why:
            feed.end(why)

    async def _report(self, reports: AsyncIterator[pb.SlaveReport]) -> pb.SlaveReport:
        try:
            async with asyncio.timeout(self._silence_s):
                return await anext(reports)
        except TimeoutError:
            raise Gone(f"silent for {self._silence_s:g} s") from None
        except StopAsyncIteration:
            raise Gone("the slave left") from None


class MasterLink:
    """A slave's connection to its master."""

    def __init__(
        self, address: str, site: Site, silence_ms: float, tls: ClientTls | None = None, account: Account | None = None
    ) -> None:
        self.address, self._site, self._silence_s = address, site, silence_ms / 1000
        self._channel = dial(address, tls, account)
        self._stub: Any = ReplicationStub(self._channel)
        self._copy: Any = self._channel.stream_stream(
            f"/{NAME}/CopyLog", request_serializer=pb.SlaveReport.SerializeToString, response_deserializer=None
        )
        self._stream: Any = None

    async def log(self, suspect: int) -> MasterLog:
        """The facts of the master's log; it looks for damage at ``suspect``. Raises DejamqError."""
        request = pb.LogExtentRequest(slave=self._identity(), suspect_offset=suspect)
        answer = await call(self._stub.LogExtent, request, address=self.address, timeout_ms=ASK_MS)
        extent = LogExtent(answer.min_offset, answer.max_offset, answer.file_size)
        damaged = tuple((part.log_offset, part.end) for part in answer.damaged)
        return MasterLog(extent, answer.boot_id, damaged, answer.replica)

    async def digest(self, boot_id: str, log_offset: int, size: int) -> tuple[int, int]:
        """As ``LogCopy.digest``, of the master's log. Raises DejamqError."""
        request = pb.LogDigestRequest(log_offset=log_offset, size=size, boot_id=boot_id)
        answer = await call(self._stub.LogDigest, request, address=self.address, timeout_ms=ASK_MS)
        return answer.size, answer.crc

    async def table(self, name: str, known: str) -> tuple[bytes, int]:
        """One of the master's tables, and the end of the log then.

        Empty when its version is the one that is ``known``. Raises DejamqError.
        """
        request = pb.CopyTableRequest(slave=self._identity(), table=name, known_version=known)
        timeout_ms = min(ASK_MS, self._silence_s * 1000)  # a slave that stops waits for it
        answer = await call(self._stub.CopyTable, request, address=self.address, timeout_ms=timeout_ms)
        return bytes(answer.content), answer.log_end

    async def follow(self, boot_id: str, log_offset: int) -> None:
        """Begin the stream of this connection, from this log offset on. Raises DejamqError."""
        self._stream = self._copy()
        await self._write(pb.SlaveReport(slave=self._identity(), master_boot_id=boot_id, log_offset=log_offset))

    async def read(self) -> LogSlice:
        """The next slice or sign of life. Raises DejamqError when the stream is over or silent, BadFrame."""
        try:
            async with asyncio.timeout(self._silence_s):
                frame = await self._stream.read()
        except TimeoutError:
            raise BrokerUnavailable(f"the master was silent for {self._silence_s:g} s", definite=False) from None
        except grpc.aio.AioRpcError as error:
            raise error_from(error, self.address) from None
        if frame is EOF:
            raise await self._ended()
        return LogSlice.decode(frame)

    async def report(self, log_offset: int) -> None:
        """Say how far this slave is. Raises DejamqError."""
        await self._write(pb.SlaveReport(log_offset=log_offset))

    async def close(self) -> None:
        """End stream and connection; may be called twice."""
        if self._stream is not None:
            self._stream.cancel()
        await self._channel.close(None)

    async def _write(self, report: pb.SlaveReport) -> None:
        try:
            await self._stream.write(report)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise await self._ended() from None

    async def _ended(self) -> DejamqError:
        """Why the stream is over."""
        if await self._stream.code() is grpc.StatusCode.OK:
            return BrokerUnavailable("the master ended the stream", definite=False)
        error = grpc.aio.AioRpcError(
            await self._stream.code(), await self._stream.initial_metadata(),
            await self._stream.trailing_metadata(), await self._stream.details(), None,
        )  # fmt: skip
        return error_from(error, self.address)

    def _identity(self) -> pb.SlaveIdentity:
        site = self._site
        return pb.SlaveIdentity(
            cluster=site.cluster, broker_name=site.broker_name, broker_id=site.broker_id, address=site.address,
            boot_id=site.boot_id,
        )  # fmt: skip


async def _write(context: Context, found: LogSlice) -> None:
    """Raises Gone: of a write to a peer that went away gRPC says only that it failed, in an error of its own."""
    try:
        await context.write(found.encode())
    except Exception as error:
        raise Gone("the connection was lost") from error


def _name(slave: pb.SlaveIdentity) -> SlaveName:
    return SlaveName(slave.cluster, slave.broker_name, slave.broker_id, slave.address, slave.boot_id)


def _first(errors: "BaseExceptionGroup[DejamqError]") -> DejamqError:
    """The first error itself, out of the groups that it may be in."""
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
