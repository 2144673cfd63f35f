"""What operators change at one broker, as calls."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dejamq_proto import admin_pb2 as pb

from dejamq.identity import Identity


class AdminChangesLink:
    """The part of ``AdminLink`` that changes or ends what is there; the stub and the call are that one's."""

    _identity: Identity
    _stub: Any
    _call: Callable[..., Awaitable[Any]]

    async def update_topic(self, topic: str, changes: Mapping[str, Any]) -> None:
        """Changes these fields. Raises DejamqError with TOPIC_NOT_EXIST."""
        request = pb.UpdateTopicRequest(caller=self._identity.caller(), topic=topic, **changes)
        await self._call(self._stub.UpdateTopic, request)

    async def delete_topic(self, topic: str) -> bool:
        """Whether the broker had it. Raises DejamqError with INVALID_PARAMETER for its own topics."""
        request = pb.DeleteTopicRequest(caller=self._identity.caller(), topic=topic)
        return bool((await self._call(self._stub.DeleteTopic, request)).existed)

    async def delete_group(self, group: str, remove_offsets: bool) -> bool:
        """Whether the broker had it. Raises DejamqError with INVALID_PARAMETER for a built-in group."""
        request = pb.DeleteGroupRequest(caller=self._identity.caller(), group=group, remove_offsets=remove_offsets)
        return bool((await self._call(self._stub.DeleteGroup, request)).existed)

    async def forbid(self, group: str, topic: str, forbidden: bool) -> None:
        """Takes the topic from the group or gives it back. Raises DejamqError with SUBSCRIPTION_GROUP_NOT_EXIST."""
        request = pb.ForbidRequest(caller=self._identity.caller(), group=group, topic=topic, forbidden=forbidden)
        await self._call(self._stub.Forbid, request)

    async def reset_offsets(self, request: pb.ResetOffsetsRequest) -> list[pb.OffsetMove]:
        """The moves; made unless the request is a dry run."""
        request.caller.CopyFrom(self._identity.caller())
        return list((await self._call(self._stub.ResetOffsets, request)).moves)

    async def clone_offsets(self, request: pb.CloneOffsetsRequest) -> list[pb.OffsetMove]:
        """The moves; made unless the request is a dry run."""
        request.caller.CopyFrom(self._identity.caller())
        return list((await self._call(self._stub.CloneOffsets, request)).moves)

    async def update_settings(self, values: Mapping[str, str]) -> dict[str, str]:
        """All settings in force afterwards. Raises DejamqError with INVALID_PARAMETER; nothing has changed then."""
        request = pb.UpdateSettingsRequest(caller=self._identity.caller(), values=values)
        return dict((await self._call(self._stub.UpdateSettings, request)).values)

    async def clashes(self) -> list[pb.Clash]:
        """Client ids that several processes used in one group."""
        request = pb.ListClashesRequest(caller=self._identity.caller())
        return list((await self._call(self._stub.ListClashes, request)).clashes)
