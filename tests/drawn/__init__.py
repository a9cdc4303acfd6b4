"""Specs that nobody wrote: drawn at random over every axis and over tiles, rendered, and proved.

    specs     the specs, by hypothesis, and their families: the same for the same number of the draw
    proving   which launches of the families are compiled

What is shipped was written beside the harness, and a harness can be right about that alone. A kernel of a drawn spec
that fails is a mistake: of the kernel, or of the harness that expects too much.
"""
