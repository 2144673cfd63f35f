"""Random faults and traffic against invariants; a failing run is reduced to few faults and kept as a scenario.

``dejamq lab explore`` owns one hunt. Enter at ``hunt``.
"""
