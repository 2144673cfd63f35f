"""Files of a store: their names, sizes, mappings, locks and checkpoints.

Everything above reads and writes through them; one class owns each mapping. Enter at ``mapped_file``.
"""
