"""The door ``dejamq.v1``: one gRPC servicer for each service of the protocol.

Servicers translate and decide nothing. Enter at ``send`` and ``pull``.
"""
