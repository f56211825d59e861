"""Rules: facts and events -> findings, with the coverage of what was checked and what was not."""
