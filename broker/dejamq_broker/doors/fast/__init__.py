"""The door for fast frames: the messages of one streaming call over plain TCP.

Its connections end in the handlers of ``doors.v1``. Enter at ``listener``.
"""
