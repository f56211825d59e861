"""Nodes against each other: drift, outliers, rates, rare events by group, and tests that tell guilty nodes from guilty paths.

Pure functions: facts in, typed results out. No I/O, no numpy. Linear in nodes.
"""
