"""What a spec may say: its words, its YAML with positions, and the `Spec` that it is read into."""
