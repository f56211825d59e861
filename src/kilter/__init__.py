"""kilter: the performance engineer of a GPU fleet, as software."""

__version__ = "0.1.0"
