"""The part of PySpark's API that the rules use, over DuckDB in this process: no JVM starts.

Names, arguments and results are PySpark's. An expression is the text of DuckDB's SQL from its first moment on. The
tests hold both engines to the same findings. A ``session`` owns its frames. Enter at ``frame`` and ``functions``.
"""
