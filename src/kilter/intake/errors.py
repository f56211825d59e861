"""What intake raises."""


class UnusableInput(Exception):
    """An input that cannot be read at all. The message says what was expected, what was found and what to do."""
