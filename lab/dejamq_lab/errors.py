"""Errors of the lab."""

from dejamq_proto.codes import Code, DejamqError


class NotSupported(DejamqError):
    """This kind of cluster cannot do that; the text says which one can."""

    default_code = Code.CLIENT_REFUSED


class ClusterFailed(DejamqError):
    """A server of the cluster did not come up, or the cluster did not become ready in time."""

    default_code = Code.SERVICE_NOT_AVAILABLE
