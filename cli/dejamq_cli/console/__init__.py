"""The pages of ``dejamq console``: a cluster now, and from journals why its messages came twice.

One process owns a ``Console``: a web server, looks at the cluster, and audits in a process of their own. Whatever
messages say is hostile: templates escape it, ``guard`` sets what a browser may do. Enter at ``server``.
"""
