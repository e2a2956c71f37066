"""The widgets of the cockpit: they draw what they are given and tell of keys by messages."""
