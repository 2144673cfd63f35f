"""What texts of strangers hold: numbers in plain digits, and letters that could drive a reader's terminal."""

MOST_32, MOST_64 = (1 << 31) - 1, (1 << 63) - 1


def number_of(text: str | None, most: int = MOST_64) -> int | None:
    """A number from 0 to ``most`` in plain digits; None for any other text, and for endless digits too."""
    if not text or not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"  # of thousands of digits Python makes no number
    return number if len(digits) <= len(str(most)) and (number := int(digits)) <= most else None


def printable(text: str) -> str:
    """Text without control characters, and without those that turn its direction: ``\\x1b`` stands for the letter."""
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
