"""What tests share and commands that tests start: nothing here is a test."""
