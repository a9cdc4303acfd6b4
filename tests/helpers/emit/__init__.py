"""What the tests of rendered families share: how families are rendered and called, and what is expected of them."""
