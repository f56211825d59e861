"""Changing a real Linux with a way back: mechanisms say what to write, the journal keeps what was there, the engine does it."""
