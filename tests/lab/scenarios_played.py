"""Which scenarios of the catalogue `make test` plays and audits; all of them are played by ``dejamq lab run``."""

PLAYED = ("healthy", "P1", "O3", "R1", "R2", "O6")
