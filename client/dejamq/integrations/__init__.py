"""dejamq under the interfaces of other libraries; each file needs an extra of its own name.

Nothing of dejamq imports this room, and no library is imported before its file is. Enter at ``taskiq``.
"""
