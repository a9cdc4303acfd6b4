"""What every error of the package that is about the caller's files or words is, so that one `except` takes them all."""


class GeneratorError(Exception):
    """A spec, a call, a folder or a file that cannot be used as it is; the text says why."""
