"""From kernels to a folder: render the text of each file, make the manifest, and update the folder.

`scaffold` writes a first spec, `staging` adds a folder to git's index, and `package` makes a wheel (`wheel`) or a
repository of the Hugging Face Hub (`hub`) of rendered folders.
"""
