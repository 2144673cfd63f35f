"""Which scenarios of the catalogue `make test` plays and audits; all of them are played by ``dejamq lab run``."""

PLAYED = ("healthy", "O3", "R1", "R2")
