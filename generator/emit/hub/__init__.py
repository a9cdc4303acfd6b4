"""A rendered family as a kernel repository of the Hugging Face Hub; the texts of its files are templates beside it."""
