"""Random faults and traffic against invariants; what breaks one is reduced to few faults and kept as a scenario."""
