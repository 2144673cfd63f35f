"""Audits of many journals: nearly every message was stored once, delivered once to each group, and is no rule's matter.

A first reading (``look``) counts, and keeps a number or two of every message. These numbers say which messages may be
part of a finding. A second reading (``pick``) takes the lines of these messages. All rules then see those lines, and
every line that is not about single messages. Their findings are the same as over all lines,
because lines that belong together are taken together, or not at all.

Both readings are Python over lines of text, because Spark's own parser and grouping take three times as long for this.
Local journals are cut into parts (``chunks``); an ``index`` of each tells the second reading which lines to open, and
it opens few. Processes of this machine read the parts (``processes``), or tasks of Spark (``spark_readings``). Journals
elsewhere are read by Spark, twice and whole.

An audit owns one survey. Enter at ``survey``.
"""
