"""From streams to a lake and back."""
