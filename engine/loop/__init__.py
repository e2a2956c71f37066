"""The run loop and the process it lives in."""
