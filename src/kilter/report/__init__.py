"""Findings, snapshots and topologies as terminal text, JSON, HTML and SVG. Decides nothing."""
