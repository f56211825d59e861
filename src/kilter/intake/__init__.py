"""The outside world -> facts and events: ``live/`` (one module a source), ``captures/`` (one module a tool)."""
