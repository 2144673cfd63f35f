"""The main job as a demonstration: orders are charged twice, and the audit says why.

A producer sends orders, two consumers of one group charge each in a SQLite ledger, one of them is killed with SIGKILL.
The ledger knows every double charge from its own rows; the audit must find the same ones from the journals alone.

``make demo`` owns one run. Enter at ``story``.
"""
