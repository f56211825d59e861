"""The linter's rules: what is wrong with a name, a value, two settings together, a setting on this framework and GPU."""
