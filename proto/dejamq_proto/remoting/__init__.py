"""RocketMQ's remoting protocol without sockets: frames, both header forms, requests and the JSON of bodies.

Both servers' remoting doors own connections and use this. Enter at ``frames`` and ``requests``.
"""
