"""From kernels to a folder: the text of each file, the manifest, and the folder brought to what was rendered."""
