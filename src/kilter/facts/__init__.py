"""The vocabulary: typed, vendor-neutral facts, events and findings. Imports nothing else of kilter."""
