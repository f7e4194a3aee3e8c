"""One file per model, the paper's appendix: its conditionals, and its kernels as lists of moves.

Here: what one model alone needs. Not here: what two need (``moves``, or ``models.laws``); no file imports another.
"""
