"""Audits of many journals: nearly every message was stored once, delivered once to each group, and is no rule's matter.

A first reading (``look``) counts, and keeps of every message a number or two; what these numbers say is which messages
may be part of a finding. A second reading (``pick``) takes the lines of those. All rules then see those, and every line
that is not about single messages, and find what they would find in everything: whatever two lines have to do with one
another is taken together, or not at all.

Both readings are Python over lines of text, because Spark's own parser and grouping take three times as long for this.
Local journals are cut into parts (``chunks``) that tasks read themselves; an ``index`` of each tells the second reading
which lines to open, and it opens few. Journals elsewhere are read by Spark, twice and whole.
"""
