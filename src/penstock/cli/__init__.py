"""The `penstock` command. It may use every other room; none of them may use it."""
