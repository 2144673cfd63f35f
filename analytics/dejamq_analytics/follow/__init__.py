"""``dejamq audit --follow``: the same rules over journals that grow."""
