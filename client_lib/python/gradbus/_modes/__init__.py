"""Modes in which ranks step on their own and exchange parameters: what all frameworks share.

local_steps.py (localsgd, diloco) and averaging.py (averaging, gossip) say when something is exchanged. Buckets do the
arithmetic: those of PyTorch are in torch/_modes, those of NumPy arrays in arrays.py.
"""
