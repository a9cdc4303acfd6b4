"""Specs that nobody wrote: drawn at random over every axis and every tile that is legal, rendered, and proved.

    specs     the specs, by hypothesis; the same for the same seed and version of hypothesis
    proving   each rendered into a family, some of its launches put through a level of `verify`
    __main__  the command: python -m tests.drawn --level compile --target sm90 --launches 2000

What is shipped was written beside the harness, and a harness can be right about that alone. A kernel of a drawn spec
that fails is a mistake: of the kernel, or of the harness that expects too much.
"""
