"""From kernels to a folder: render the text of each file, make the manifest, and update the folder."""
